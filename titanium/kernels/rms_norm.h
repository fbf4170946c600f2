// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps), row by row; forward, once more from rstd, and backward.
// Pointers are device memory; work is queued on `stream` and nothing synchronises. All arrays are contiguous, [rows,
// dim] unless said otherwise. Any sizes; rows of a multiple of 16 bytes that are 16-byte aligned take the vector path.
// `amax` may be null. Otherwise it is raised to the largest magnitude of the result, after rounding; NaN if there is
// one. The caller has set it to 0.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct RmsNormForwardArgs {
  ElementType type;  // of x and y
  ElementType weight_type;
  const void* x;
  const void* weight;  // [dim]
  void* y;             // may be x; may be null, for what needs only the others
  float* rstd;         // [rows], for the backward
  int64_t rows;
  int64_t dim;
  float eps;
  float* amax = nullptr;  // of y, whether or not y is written
};
void rms_norm_forward(const RmsNormForwardArgs& args, GpuStream stream);

// y from what was normalised and its rstd. The same bits as in the forward.
struct RmsNormApplyArgs {
  ElementType type;  // of x and y
  ElementType weight_type;
  const void* x;
  const float* rstd;   // [rows]
  const void* weight;  // [dim]
  void* y;             // may be x
  int64_t rows;
  int64_t dim;
};
void rms_norm_apply(const RmsNormApplyArgs& args, GpuStream stream);

// dx = gradient of x [+ residual_grad], dweight [+]= gradient of the weight, and y once more if it is wanted, the same
// bits as rms_norm_apply writes; neither dx nor dweight depends on whether y is written. Without atomics: each block
// sums the rows that it treats, and a second kernel sums the blocks' parts in order. The same bits in every run on one
// kind of GPU.
struct RmsNormBackwardArgs {
  ElementType type;  // of dy, x, residual_grad, dx and y
  ElementType weight_type;
  ElementType dweight_type;
  const void* dy;
  const void* x;
  const float* rstd;
  const void* weight;         // [dim]
  const void* residual_grad;  // may be null; added to dx: the gradient that goes around the norm
  void* dx;                   // may be dy, x or residual_grad
  void* dweight;              // [dim]
  bool accumulate_dweight;    // add to dweight instead of overwriting it
  float* scratch;             // of rms_norm_backward_scratch_bytes(rows, dim), 16-byte aligned
  int64_t rows;
  int64_t dim;
  float* amax = nullptr;  // of dx
  void* y = nullptr;      // may be null; may be dy, x or residual_grad, but overlaps dx nowhere
};
void rms_norm_backward(const RmsNormBackwardArgs& args, GpuStream stream);
// Depends on the current device.
int64_t rms_norm_backward_scratch_bytes(int64_t rows, int64_t dim);

}  // namespace titanium::kernels
