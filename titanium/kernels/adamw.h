// AdamW and Adam over many tensors in one launch. Note [Tensor lists].
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"
#include "titanium/kernels/tensor_list.h"

namespace titanium::kernels {

// All arrays are contiguous with `count` elements; where all are 16-byte aligned, accesses are 128 bits wide. With
// stochastic rounding that also takes random_first and random_gap that are multiples of 4 and, unless the gap is 0, a
// random_row that is one of 8.
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
  int64_t first_chunk;     // from number_chunks
  // Number of this update, from 1; null: AdamWArgs::step. On the device, because a count need not advance where an
  // update was skipped.
  const float* step = nullptr;
  // For stochastic rounding: a key, and the numbers of the elements, e.g. those in the unsharded parameter. Element i
  // has number random_first + i + i / random_row * random_gap.
  uint64_t random_key = 0;
  int64_t random_first = 0;
  int64_t random_row = 0;  // below 2^31; not read where the gap is 0
  int64_t random_gap = 0;
  // May be null; bfloat16, `count` elements. An fp32 parameter is also written there, rounded to nearest.
  void* copy = nullptr;
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
  // Device scalars, each of which may be null.
  const float* clip_scale;
  const float* skip;
  // Rounds bf16 parameters up or down with the probability that makes the rounding right on average. The bits depend on
  // the tensor's key, the number of the update and the element's number alone. Note [Stochastic rounding].
  bool stochastic_rounding;
};
void adamw(const AdamWArgs& args, GpuStream stream);

}  // namespace titanium::kernels
