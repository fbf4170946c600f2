// What kernels share of which each block treats one row of an expert.
#pragma once

#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/expert_swiglu.h"

namespace titanium::kernels {

constexpr int kMostRowThreads = 256;

// Whole warps for a row of `words`, of which each thread takes the same number but for the last.
inline int row_threads(int64_t words) {
  const int64_t turns = ceil_div(words, kMostRowThreads);
  const int64_t threads = turns > 0 ? ceil_div(ceil_div(words, turns), 32) * 32 : 32;
  return static_cast<int>(threads);
}

// The expert of a row: as many as end at or before it. `num_experts` if no expert has it. All lanes must call it.
__device__ inline int expert_of_row(const int32_t* ends, int64_t num_experts, int64_t row) {
  int expert = 0;
  for (int64_t first = 0; first < num_experts; first += 32) {
    const int64_t other = first + threadIdx.x % 32;
    expert += __popc(__ballot_sync(kWholeWarp, other < num_experts && ends[other] <= row));
  }
  return expert;
}

__device__ inline int64_t index_of_weight(const RowWeights& weights, int64_t row) {
  return weights.choice_of_row != nullptr ? weights.choice_of_row[row] : row;
}
__device__ inline float weight_at(const RowWeights& weights, int64_t index) {
  return weights.weights != nullptr ? weights.weights[index] : 1.0F;
}

// Sums the block's values in a fixed order. All threads must call it, and only once.
__device__ inline void write_weight_gradient(const RowWeights& weights, int64_t index, float value) {
  __shared__ float of_warp[kMostRowThreads / 32];
  if (weights.grad_weights == nullptr) return;
  value = lanes_sum<32>(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) value += of_warp[warp];
  weights.grad_weights[index] = weights.accumulate ? weights.grad_weights[index] + value : value;
}

}  // namespace titanium::kernels
