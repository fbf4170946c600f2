// The largest magnitude of many elements, found on their bits: without the sign they order as unsigned numbers, and NaN
// is above Inf. The result does not depend on the order, so atomics keep it reproducible.
#pragma once

#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {

// Elementwise on a register, which holds one float or two bfloat16. `held` has no signs.
template <typename T>
__device__ unsigned larger_magnitudes(unsigned held, unsigned elements) {
  if constexpr (sizeof(T) == 2) {
    return __vmaxu2(held, elements & 0x7FFF7FFFU);
  } else {
    return max(held, elements & 0x7FFFFFFFU);
  }
}

// The largest magnitude of the elements added so far; 0 if there are none.
template <typename T>
class Magnitude {
 public:
  template <int N>
  __device__ void add(const Raw<T, N>& raw) {
    if constexpr (Raw<T, N>::kBytes < 4) {
      held_ = larger_magnitudes<T>(held_, raw.words[0]);
    } else {
      const unsigned* registers = reinterpret_cast<const unsigned*>(&raw);
#pragma unroll
      for (int i = 0; i < Raw<T, N>::kBytes / 4; ++i) held_ = larger_magnitudes<T>(held_, registers[i]);
    }
  }
  __device__ void add(const Magnitude& other) { held_ = larger_magnitudes<T>(held_, other.held_); }

  // As the bits of a float.
  __device__ unsigned bits() const {
    if constexpr (sizeof(T) == 2) {
      return max(held_ << 16, held_ & 0xFFFF0000U);
    } else {
      return held_;
    }
  }

 private:
  unsigned held_ = 0;
};

// The largest magnitudes of N neighbouring columns, each on its own.
template <typename T, int N>
class ColumnMagnitudes {
 public:
  __device__ void add(const Raw<T, N>& row) {
    if constexpr (N * sizeof(T) < 4) {
      held_[0] = larger_magnitudes<T>(held_[0], row.words[0]);
    } else {
      const unsigned* registers = reinterpret_cast<const unsigned*>(&row);
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) held_[i] = larger_magnitudes<T>(held_[i], registers[i]);
    }
  }
  // The magnitude of one column, as the bits of a float.
  __device__ unsigned bits(int column) const {
    if constexpr (sizeof(T) == 4) return held_[column];
    const unsigned pair = held_[column / 2];
    return column % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U;
  }

 private:
  static constexpr int kRegisters = (N * static_cast<int>(sizeof(T)) + 3) / 4;
  unsigned held_[kRegisters] = {};
};

// Over a warp. All 32 lanes must call it; all get the maximum.
__device__ inline unsigned warp_max(unsigned bits) { return __reduce_max_sync(kWholeWarp, bits); }

// Over a block of kThreads. All threads must call it; all get the maximum. Rooms are used as those of block_sum.
template <int kThreads>
__device__ unsigned block_max(unsigned bits, BlockSumRoom<unsigned>& room) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kWarps <= 32);
  const int lane = threadIdx.x % 32;
  bits = warp_max(bits);
  if (lane == 0) room.of_warp[threadIdx.x / 32] = bits;
  __syncthreads();
  return warp_max(lane < kWarps ? room.of_warp[lane] : 0U);
}

// Raises *amax to the block's largest magnitude. All threads must call it; nothing happens if amax is null. Most blocks
// see that another has raised it far enough, and spare themselves the atomic, which would wait for those of all others.
template <int kThreads, typename T>
__device__ void raise_to_block(float* amax, const Magnitude<T>& magnitude) {
  if (amax == nullptr) return;
  __shared__ BlockSumRoom<unsigned> room;
  __syncthreads();  // the room may be in use by an earlier call
  const unsigned bits = block_max<kThreads>(magnitude.bits(), room);
  unsigned* found = reinterpret_cast<unsigned*>(amax);
  if (threadIdx.x == 0 && bits > *static_cast<volatile unsigned*>(found)) atomicMax(found, bits);
}

}  // namespace titanium::kernels
