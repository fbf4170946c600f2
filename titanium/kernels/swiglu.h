// product = silu(gate) * up, element by element, and its gradients; silu(x) = x / (1 + exp(-x)).
// All arrays are [rows, dim] with a stride in elements from row to row, so gate and up can be the two halves of one
// fused [rows, 2 * dim] output: up = gate + dim, both strides 2 * dim. Any sizes; aligned rows take the vector path.
// Pointers are device memory; work is queued on `stream` and nothing synchronises.
// `amax` pointers may be null. Otherwise they are raised to the largest magnitude of what is stored, after rounding;
// NaN if there is one. The caller has set them to 0.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct SwigluForwardArgs {
  ElementType type;
  const void* gate;
  const void* up;
  void* product;  // may be gate or up; may be null if only amax is asked for
  int64_t gate_stride;
  int64_t up_stride;
  int64_t product_stride;
  int64_t rows;
  int64_t dim;
  float* amax = nullptr;  // of the product
};
void swiglu_forward(const SwigluForwardArgs& args, GpuStream stream);

// An output may be any of the inputs (with the same stride), but no two outputs may overlap.
struct SwigluBackwardArgs {
  ElementType type;
  const void* dproduct;
  const void* gate;
  const void* up;
  void* dgate;
  void* dup;
  void* product;  // may be null; the forward's product once more, the same bits
  int64_t dproduct_stride;
  int64_t gate_stride;
  int64_t up_stride;
  int64_t dgate_stride;
  int64_t dup_stride;
  int64_t product_stride;
  int64_t rows;
  int64_t dim;
  float* dgate_amax = nullptr;
  float* dup_amax = nullptr;
};
void swiglu_backward(const SwigluBackwardArgs& args, GpuStream stream);

}  // namespace titanium::kernels
