// Sums over a warp, over part of one, and over a block. The order of summation is fixed, so results are reproducible.
#pragma once

#include <cuda_runtime.h>

namespace titanium::kernels {

constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

// Over each run of kLanes neighbouring lanes (a power of two up to 32). All 32 lanes must call it; all get the sum.
template <int kLanes, typename T>
__device__ T lanes_sum(T value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kWholeWarp, value, offset);
  return value;
}

// Room for block_sum. A block that calls it in a loop uses two, in turn: then the one barrier inside is enough, because
// nobody can be two calls ahead.
template <typename T>
struct BlockSumRoom {
  T of_warp[32];
};

// Over a block of kThreads (a multiple of 32). All threads must call it; all get the sum.
template <int kThreads, typename T>
__device__ T block_sum(T value, BlockSumRoom<T>& room) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kWarps <= 32);
  value = lanes_sum<32>(value);
  if (threadIdx.x % 32 == 0) room.of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return lanes_sum<32>(lane < kWarps ? room.of_warp[lane] : T{0});
}

// Over groups of kGroup threads: part of a warp, or the whole block.
template <int kGroup, int kThreads, typename T>
__device__ T group_sum(T value, BlockSumRoom<T>& room) {
  if constexpr (kGroup <= 32) {
    return lanes_sum<kGroup>(value);
  } else {
    static_assert(kGroup == kThreads);
    return block_sum<kThreads>(value, room);
  }
}

}  // namespace titanium::kernels
