// SwiGLU of the rows of experts between products of float8: what it makes leaves as float8, and not in bfloat16. Values
// are rounded to bfloat16 and then quantised, by rows as quantize_rows does (titanium/kernels/float8.h) and by columns
// as quantize_groups does (titanium/kernels/expert_float8.h), to the same bits.
//
// Arrays are [rows, dim], contiguous, in bfloat16 or e4m3; `dim` is a multiple of 8 up to kMostSwigluFloat8Columns.
// Pointers are device memory, 16-byte aligned; work is queued on `stream` and nothing synchronises.
#pragma once

#include "titanium/kernels/expert_float8.h"
#include "titanium/kernels/expert_swiglu.h"

namespace titanium::kernels {

constexpr int64_t kMostSwigluFloat8Columns = 8192;

struct Float8RowsOutput {
  void* values;        // [rows, dim]
  float* reciprocals;  // [rows]
};

// product = silu(gate) * up.
struct SwigluFloat8ForwardArgs {
  const void* gate;
  const void* up;
  int64_t rows;
  int64_t dim;
  Float8RowsOutput product;
};
void swiglu_float8_forward(const SwigluFloat8ForwardArgs& args, GpuStream stream);

// As expert_swiglu_backward. Gradients of gate and up by rows; by columns both of them and the weighted product.
struct SwigluFloat8BackwardArgs {
  const void* dproduct;
  const void* gate;
  const void* up;
  const int32_t* ends;       // [groups]; the last one is `rows`
  const int32_t* line_ends;  // [groups]
  int64_t groups;
  int64_t rows;
  int64_t dim;
  RowWeights weights;
  Float8RowsOutput dgate;
  Float8RowsOutput dup;
  // Of dgate, dup and the product, as those of quantize_groups: [3, dim, length].
  uint8_t* lines;
  int64_t length;
  float* amax;         // [3, groups, dim], of which the caller has made zeros; the largest magnitudes
  float* reciprocals;  // [3, groups, dim]
};
void swiglu_float8_backward(const SwigluFloat8BackwardArgs& args, GpuStream stream);

}  // namespace titanium::kernels
