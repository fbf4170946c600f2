// The layer norm of a diffusion transformer: y = (1 + scale) * (x - mean) * rstd + shift, row by row, where scale and
// shift are vectors of the sample that a row belongs to; forward and backward. Pointers are device memory; work is
// queued on `stream` and nothing synchronises. All arrays are contiguous and 16-byte aligned, [rows, dim] or
// [samples, dim] with samples = rows / rows_of_sample.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct ModulatedNormForwardArgs {
  ElementType type;  // of x, shift, scale and y
  const void* x;
  const void* shift;  // [samples, dim]
  const void* scale;  // [samples, dim]
  void* y;            // may be x
  float* mean;        // [rows], for the backward
  float* rstd;        // [rows]
  int64_t rows;
  int64_t rows_of_sample;
  int64_t dim;
  float eps;
};
void modulated_norm_forward(const ModulatedNormForwardArgs& args, GpuStream stream);

// dx = gradient of x [+ residual_grad], and those of shift and scale. Without atomics: each block sums the rows that it
// treats, and a second kernel sums the blocks' parts in order. The same bits in every run on one kind of GPU.
struct ModulatedNormBackwardArgs {
  ElementType type;  // of all arrays without another type
  const void* dy;
  const void* x;
  const float* mean;
  const float* rstd;
  const void* scale;          // [samples, dim]
  const void* residual_grad;  // may be null; added to dx: the gradient that goes around the norm
  void* dx;                   // may be dy, x or residual_grad
  void* dshift;               // [samples, dim]
  void* dscale;               // [samples, dim]
  float* scratch;             // of modulated_norm_backward_scratch_bytes
  int64_t rows;
  int64_t rows_of_sample;
  int64_t dim;
};
void modulated_norm_backward(const ModulatedNormBackwardArgs& args, GpuStream stream);
// Depends on the current device.
int64_t modulated_norm_backward_scratch_bytes(const ModulatedNormBackwardArgs& args);

// Whether there are kernels for rows of this size: of a multiple of 16 bytes, up to 16 KiB.
constexpr bool has_modulated_norm(ElementType type, int64_t dim) {
  const int64_t bytes = dim * element_size(type);
  return bytes % 16 == 0 && bytes <= 1024 * 16;
}

}  // namespace titanium::kernels
