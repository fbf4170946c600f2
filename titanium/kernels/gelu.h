// GELU in its tanh form, x / (1 + exp(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3), and its backward. Pointers are
// device memory; work is queued on `stream` and nothing synchronises. Rows are contiguous and begin `..._stride`
// elements apart. Any sizes; where all rows are 16-byte aligned and of a multiple of 16 bytes the vector path is taken.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

struct GeluForwardArgs {
  ElementType type;
  const void* x;
  int64_t x_stride;
  void* y;  // may be x
  int64_t y_stride;
  int64_t rows;
  int64_t dim;
};
void gelu_forward(const GeluForwardArgs& args, GpuStream stream);

struct GeluBackwardArgs {
  ElementType type;
  const void* dy;
  int64_t dy_stride;
  const void* x;
  int64_t x_stride;
  void* dx;  // may be dy or x
  int64_t dx_stride;
  int64_t rows;
  int64_t dim;
};
void gelu_backward(const GeluBackwardArgs& args, GpuStream stream);

}  // namespace titanium::kernels
