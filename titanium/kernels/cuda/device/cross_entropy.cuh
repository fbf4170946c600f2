// What the kernels of cross-entropy share: sums of exponentials, words of the gradient, rows that a warp holds.
#pragma once

#include "titanium/kernels/cross_entropy.h"
#include "titanium/kernels/cuda/device/exponential.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels::cross {

constexpr int kBatch = 4;  // words that a thread has under way

// The sum of exp(x - max) over the x seen so far. The first maximum is finite, so that no difference of infinities
// arises. An exponential is the power of two of x * log2(e) - in_log2(max), one instruction before it. in_log2 is
// rounded: where maxima are exchanged, differences are those of in_log2, and `sum` is relative to it; exact_sum is
// relative to max.
struct SumExp {
  float max = -1e30F;
  float sum = 0;
};

// Rounded by itself: inside a difference the compiler would otherwise leave one of the two products exact.
__device__ inline float in_log2(float x) { return __fmul_rn(x, kLog2OfE); }

__device__ inline void raise_max(SumExp& part, float max) {
  part.sum *= exp2_approximately(in_log2(part.max) - in_log2(max));
  part.max = max;
}

__device__ inline void add(SumExp& part, const SumExp& other) {
  SumExp more = other;
  const float max = fmaxf(part.max, other.max);
  raise_max(part, max);
  raise_max(more, max);
  part.sum += more.sum;
}

__device__ inline float exact_sum(const SumExp& part) {
  return part.sum * exp2_approximately(fmaf(-part.max, kLog2OfE, in_log2(part.max)));
}

template <int N>
__device__ void add(SumExp& part, const float (&values)[N]) {
  float max = values[0];
  for (int j = 1; j < N; ++j) max = fmaxf(max, values[j]);
  if (max > part.max) raise_max(part, max);
  const float shift = in_log2(part.max);
  for (int j = 0; j < N; ++j) part.sum += exp2_approximately(fmaf(values[j], kLog2OfE, -shift));
}

__device__ inline SumExp add_lanes(SumExp part) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    SumExp other;
    other.max = __shfl_xor_sync(kWholeWarp, part.max, offset);
    other.sum = __shfl_xor_sync(kWholeWarp, part.sum, offset);
    add(part, other);
  }
  return part;
}

// Rooms are used in turn, as those of block_sum.
struct SumExpRoom {
  float max[32];
  float sum[32];
};
template <int kThreads>
__device__ SumExp add_block(SumExp part, SumExpRoom& room) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  part = add_lanes(part);
  if (lane == 0) {
    room.max[warp] = part.max;
    room.sum[warp] = part.sum;
  }
  __syncthreads();
  SumExp of_warp;
  if (lane < kThreads / 32) {
    of_warp.max = room.max[lane];
    of_warp.sum = room.sum[lane];
  }
  return add_lanes(of_warp);
}

// Reads a row; keeps its first `kept` words in `cache`. A thread finds there only words of its own.
template <int kThreads, typename T, int N>
__device__ SumExp read_row(const T* row, int words, Raw<T, N>* cache, int kept, SumExpRoom& room) {
  SumExp part;
  for (int first = threadIdx.x; first < words; first += kThreads * kBatch) {
    Raw<T, N> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = first + i * kThreads;
      if (word < words) raw[i] = load_again<T, N>(row + int64_t{word} * N);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = first + i * kThreads;
      if (word >= words) break;
      if (word < kept) cache[word] = raw[i];
      float values[N];
      to_float(raw[i], values);
      add(part, values);
    }
  }
  return add_block<kThreads>(part, room);
}

// A word of row = exp(row - shift) * factor, less `scale` at the column `target`, which may be outside.
template <typename T, int N>
__device__ void write_word(T* row, int word, const Raw<T, N>& raw, float shift, float factor, int64_t target,
                           float scale) {
  float values[N];
  to_float(raw, values);
  for (int j = 0; j < N; ++j) values[j] = exp2_approximately(fmaf(values[j], kLog2OfE, -in_log2(shift))) * factor;
  const int64_t column = int64_t{word} * N;
  if (target >= column && target < column + N) {
    for (int j = 0; j < N; ++j) values[j] -= column + j == target ? scale : 0.0F;
  }
  store_floats<T, N>(row + column, values);
}

template <typename T>
__device__ float target_logit(const CrossEntropyArgs& args, const T* row, int64_t label) {
  const bool known = label >= 0 && label < args.vocabulary;
  return known ? static_cast<float>(row[label]) : __int_as_float(0x7FFFFFFF);
}

constexpr int kWarpThreads = 256;
constexpr int kWarpBlocks = 4;  // per multiprocessor
constexpr int kWarpWords = 8;   // that a lane holds of its row

// A row of up to 32 * kWarpWords words, in the registers of one warp, so that many rows are under way.
template <typename T, int N>
struct WarpRow {
  __device__ WarpRow(const T* row, int words) : words(words) {
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (word(i) < words) raw[i] = load<T, N>(row + int64_t{word(i)} * N);
    }
  }
  __device__ static int word(int i) { return static_cast<int>(threadIdx.x) % 32 + i * 32; }
  __device__ SumExp sum() const {
    SumExp part;
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (word(i) >= words) break;
      float values[N];
      to_float(raw[i], values);
      add(part, values);
    }
    return add_lanes(part);
  }
  Raw<T, N> raw[kWarpWords];
  int words;
};

constexpr int kWarpRows = kWarpThreads / 32;  // of a block
__device__ inline int64_t row_of_warp() { return int64_t{blockIdx.x} * kWarpRows + threadIdx.x / 32; }

// Calls `call` with the element type and the elements of an access, both as types.
template <typename Call>
void with_access(ElementType type, const void* logits, int64_t row_stride, int64_t vocabulary, const Call& call) {
  with_type(type, [&](auto element) {
    using T = decltype(element);
    if (vocabulary % kVectorSize<T> == 0 && vector_aligned(logits, row_stride, sizeof(T))) {
      call(Raw<T, kVectorSize<T>>{}, element);
    } else {
      call(Raw<T, 1>{}, element);
    }
  });
}

template <typename T, int N>
constexpr int count_of(const Raw<T, N>&) {
  return N;
}

}  // namespace titanium::kernels::cross
