// AdamW and Adam over many tensors in one launch. Note [Tensor lists].
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/tensor_list.h"

struct CUstream_st;

namespace titanium::kernels {

// All arrays are contiguous with `count` elements; where all four are 16-byte aligned (and random_first is a multiple
// of 4), accesses are 128 bits wide.
struct AdamWTensor {
  static constexpr int64_t kChunkElements = 1 << 14;
  void* parameter;
  const void* gradient;
  void* exp_avg;
  void* exp_avg_sq;
  int64_t count;
  ElementType parameter_type;
  ElementType gradient_type;
  ElementType state_type;  // of exp_avg and exp_avg_sq
  int64_t random_first;    // number of the first element for stochastic rounding, e.g. in the unsharded model
  int64_t first_chunk;     // from number_chunks
  // Number of this update, from 1; null: AdamWArgs::step. On the device, because a count need not advance where an
  // update was skipped.
  const float* step = nullptr;
  int64_t elements() const { return count; }
};

// One update in fp32, with g = gradient * *clip_scale:
//   decoupled: parameter -= lr * weight_decay * parameter;  else: g += weight_decay * parameter
//   exp_avg    += (1 - beta1) * (g - exp_avg)
//   exp_avg_sq  = beta2 * exp_avg_sq + (1 - beta2) * g^2
//   parameter  -= lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + eps)
// The moments are rounded when they are stored, not before they are used. If *skip is not 0, nothing changes. Work is
// queued on `stream` and nothing synchronises.
struct AdamWArgs {
  const AdamWTensor* tensors;  // [count], in device memory
  int64_t count;
  int64_t chunks;  // from number_chunks
  double learning_rate;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  bool decoupled;
  int64_t step;  // number of this update, from 1
  // Device scalars, each of which may be null. The last one stands in for the value above: a captured graph can be
  // replayed with others.
  const float* clip_scale;
  const float* skip;
  const float* device_learning_rate;
  // Rounds bf16 parameters up or down with the probability that makes the rounding right on average. The bits depend on
  // the key and on the element's number alone; give each step its own key. Note [Stochastic rounding].
  bool stochastic_rounding;
  uint64_t random_key;
};
void adamw(const AdamWArgs& args, CUstream_st* stream);

}  // namespace titanium::kernels
