// The backward of SwiGLU over the rows of experts, and its clamped form both ways. Only the device knows the number of
// rows: arrays have room for `rows` rows, those beyond the count are neither read nor written. The backward goes
// together with the weights of the router: y = sum of weight
// * (product W2^T), so what comes back through W2 is the gradient of the weighted product.
//
// Pointers are device memory; work is queued on `stream` and nothing synchronises. Arrays have a stride in elements
// from row to row. Any sizes; aligned rows take the vector path. Arithmetic is fp32, each result is rounded once.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// What the router has to do with a row. Both arrays of floats are indexed by choice_of_row[row], or by the row where
// that is null.
struct RowWeights {
  const float* weights = nullptr;          // may be null: 1
  const int32_t* choice_of_row = nullptr;  // may be null
  float* grad_weights = nullptr;           // may be null
  bool accumulate = false;                 // add to grad_weights instead of overwriting them
};

// From dproduct, the gradient of weight * product: gradients of gate and up, the weighted product for the gradient of
// W2, and grad_weights = <dproduct, product>, summed in an order that depends on dim alone. An output may be any of the
// inputs (with the same stride), but no two outputs may overlap.
struct ExpertSwigluBackwardArgs {
  ElementType type;
  const void* dproduct;
  const void* gate;
  const void* up;
  void* dgate;
  void* dup;
  void* product;  // may be null; weight * product
  int64_t dproduct_stride;
  int64_t gate_stride;
  int64_t up_stride;
  int64_t dgate_stride;
  int64_t dup_stride;
  int64_t product_stride;
  int64_t rows;
  int64_t dim;
  const int32_t* row_count = nullptr;  // may be null: all rows; the end of the last expert's rows, for example
  RowWeights weights;
};
void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args, GpuStream stream);

// The form of GPT-OSS. Columns of `fused` are gate and up, interleaved; with the expert's bias g = even + bias, u = odd
// + bias, product = min(g, limit) * sigmoid(1.702 * min(g, limit)) * (clamp(u, -limit, limit) + 1).
constexpr float kClampedSwigluSlope = 1.702F;

struct ClampedSwigluForwardArgs {
  ElementType type;
  ElementType bias_type;
  const void* fused;    // [rows, 2 * dim]
  const void* bias;     // [num_experts, 2 * dim], contiguous; may be null
  const int32_t* ends;  // [num_experts]: where each expert's rows end; the last is the count of rows
  void* product;        // [rows, dim]
  int64_t fused_stride;
  int64_t product_stride;
  int64_t rows;
  int64_t dim;
  int64_t num_experts;
  float limit;
};
void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args, GpuStream stream);

// As expert_swiglu_backward. dfused is the gradient of `fused` and, summed over an expert's rows, of its bias; it is 0
// where the clamps act. dfused may be `fused`, and product may be dproduct.
struct ClampedSwigluBackwardArgs {
  ElementType type;
  ElementType bias_type;
  const void* dproduct;
  const void* fused;
  const void* bias;
  const int32_t* ends;
  void* dfused;
  void* product;  // may be null
  int64_t dproduct_stride;
  int64_t fused_stride;
  int64_t dfused_stride;
  int64_t product_stride;
  int64_t rows;
  int64_t dim;
  int64_t num_experts;
  float limit;
  RowWeights weights;
};
void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args, GpuStream stream);

}  // namespace titanium::kernels
