// The last step of grouped products: sums are scaled, rounded and stored.
#pragma once

#include <cuda_bf16.h>

#include "titanium/kernels/cuda/device/exponential.cuh"
#include "titanium/kernels/cuda/device/grouped_tiles.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels::grouped {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void meet_group(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

// Note [Scales of a sum in two parts]
// Both parts go into the same sums, so those of the first are brought to the scale of the second before that begins.
// Scales are powers of two: this costs at most the last bits of fp32. A second scale that is smaller than the first by
// more than 2^40 counts as that much smaller, so that nothing overflows; what it stands for is then far below the last
// bit of the result.
enum class Scaling { kBetweenParts, kAtTheEnd };

template <typename Kind>
__device__ float factor(float first, float second, Scaling when) {
  if constexpr (Kind::kForm != Form::kInputGrad) return first;
  const float common = fmaxf(second, first * 0x1p-40F);
  return when == Scaling::kAtTheEnd ? common : first * reciprocal_approximately(common);
}

// The first row of a thread of a group, and the first of two columns of every eight.
__device__ inline int row_of_thread(const Tile& tile, int group) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  return tile.row + 64 * group + thread / 32 * 16 + thread % 32 / 4;
}
__device__ inline int column_of_thread() { return static_cast<int>(threadIdx.x) % 4 * 2; }

__device__ inline float2 load_pair(const float* from) { return *reinterpret_cast<const float2*>(from); }
__device__ inline float2 load_pair(const bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}

// By what the numbers of float8 stand for.
template <typename Kind, int N>
__device__ void scale_sums(float (&sums)[N], const KernelArgs& args, const Tile& tile, int group, Scaling when) {
  constexpr bool kTwo = Kind::kForm == Form::kInputGrad;
  const int64_t rows = Kind::kOfWeight ? int64_t{tile.expert} * args.height : 0;
  float of_row[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row_of_thread(tile, group) + 8 * half;
    if (row >= tile.last) continue;
    of_row[half] = factor<Kind>(args.row_scales[0][rows + row], kTwo ? args.row_scales[1][rows + row] : 0.0F, when);
  }
  const int64_t columns = int64_t{tile.expert} * args.width + tile.column + column_of_thread();
#pragma unroll
  for (int g = 0; g < N / 4; ++g) {
    constexpr bool kTwoResults = Kind::kForm == Form::kTwoResults;
    const int64_t at = columns + (kTwoResults ? g % 16 : g) * 8;
    const float2 first = load_pair(args.column_scales[kTwoResults ? g / 16 : 0] + at);
    const float2 second = kTwo ? load_pair(args.column_scales[1] + at) : float2{};
    const float of_column[] = {factor<Kind>(first.x, second.x, when), factor<Kind>(first.y, second.y, when)};
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[4 * g + i] *= of_row[i / 2] * of_column[i % 2];
  }
}

// The four lanes of a row have two columns of each of four groups of eight; afterwards each has one whole group.
__device__ inline void exchange_in_row(uint32_t (&words)[4]) {
  const unsigned lane = threadIdx.x % 4;
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool high = (lane & step) != 0;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low_word = step == 1 ? 2 * pair : pair, high_word = low_word + step;
      const uint32_t given = high ? words[low_word] : words[high_word];
      const uint32_t got = __shfl_xor_sync(0xFFFFFFFF, given, step);
      (high ? words[low_word] : words[high_word]) = got;
    }
  }
}

__device__ inline uint32_t as_word(__nv_bfloat162 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

// A group's way of storing results, 64 columns at a time. word(g, half) is a thread's pair of bfloat16 of eight columns
// g, in its first row or the one 8 further.
class Store {
 public:
  __device__ Store(const KernelArgs& args, Shared& shared, int group)
      : args_(args), boxes_(shared.results[group]), group_(group), thread_(static_cast<int>(threadIdx.x) % 128) {}

  template <typename Word>
  __device__ void write(const Tile& tile, int result, int column, int matrix, const Word& word) {
    if (tile.row + 64 * (group_ + 1) <= tile.last) {
      write_box(tile, result, column, matrix, word);
    } else {
      write_rows(tile, result, column, matrix, word);
    }
  }
  __device__ int row_of(const Tile& tile) const { return row_of_thread(tile, group_); }
  // Before the block ends.
  __device__ void finish() const {
    if (thread_ == 0) tensor_core::wait_until_read_all_but<0>();
  }

 private:
  template <typename Word>
  __device__ void write_box(const Tile& tile, int result, int column, int matrix, const Word& word) {
    Box& box = boxes_[turn_];
    turn_ ^= 1;
    if (thread_ == 0) tensor_core::wait_until_read_all_but<1>();
    meet_group(group_);
    const int lane = thread_ % 32, row = thread_ / 32 * 16 + lane % 16;
#pragma unroll
    for (int g = 0; g < 8; g += 2) {
      const uint32_t words[] = {word(g, 0), word(g, 1), word(g + 1, 0), word(g + 1, 1)};
      tensor_core::store_matrices(&box.rows[row][(g + lane / 16 ^ row % 8) * 16], words);
    }
    tensor_core::fence_shared_stores();
    meet_group(group_);
    if (thread_ == 0) {
      tensor_core::copy_box_out(args_.results[result], column, tile.row + 64 * group_, matrix, &box);
      tensor_core::close_copies_out();
    }
  }

  // Where the rows of the next expert follow.
  template <typename Word>
  __device__ void write_rows(const Tile& tile, int result, int column, int matrix, const Word& word) {
    auto* out = static_cast<bfloat16*>(args_.out[result]) + int64_t{matrix} * args_.height * args_.width;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(tile) + 8 * half, g = part * 4;
        uint32_t words[] = {word(g, half), word(g + 1, half), word(g + 2, half), word(g + 3, half)};
        exchange_in_row(words);
        if (row >= tile.last) continue;
        *reinterpret_cast<uint4*>(out + int64_t{row} * args_.width + column + part * 32 + column_of_thread() * 4) =
            uint4{words[0], words[1], words[2], words[3]};
      }
    }
  }

  const KernelArgs& args_;
  Box* boxes_;
  int group_, thread_, turn_ = 0;
};

template <int kBoxes>
__device__ void store_rows(const float (&sums)[kBoxes * 32], const Tile& tile, Store& store, int matrix) {
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    store.write(tile, 0, tile.column + 64 * box, matrix, [&](int g, int half) {
      const int at = (box * 8 + g) * 4 + half * 2;
      return as_word(__floats2bfloat162_rn(sums[at], sums[at + 1]));
    });
  }
}

// Products with two matrices, and SwiGLU of them where it is wanted.
template <bool kWithSwiglu>
__device__ void store_two_results(const float (&sums)[128], const Tile& tile, Store& store) {
#pragma unroll
  for (int box = 0; box < 2; ++box) {
    const auto pair = [&](int g, int half, int first) {
      const int at = first + (box * 8 + g) * 4 + half * 2;
      return __floats2bfloat162_rn(sums[at], sums[at + 1]);
    };
    const int column = tile.column + 64 * box;
    store.write(tile, 0, column, 0, [&](int g, int half) { return as_word(pair(g, half, 0)); });
    store.write(tile, 1, column, 0, [&](int g, int half) { return as_word(pair(g, half, 64)); });
    if constexpr (!kWithSwiglu) continue;
    store.write(tile, 2, column, 0, [&](int g, int half) {
      const float2 gate = __bfloat1622float2(pair(g, half, 0)), up = __bfloat1622float2(pair(g, half, 64));
      return as_word(__floats2bfloat162_rn(swiglu_product(gate.x, up.x), swiglu_product(gate.y, up.y)));
    });
  }
}

template <typename T, int kBoxes>
__device__ void store_weight_grad(float (&sums)[kBoxes * 32], const KernelArgs& args, const Tile& tile, Store& store) {
  T* out = static_cast<T*>(args.out[0]) + int64_t{tile.expert} * args.height * args.width;
  if (args.accumulate || sizeof(T) == 4) {
#pragma unroll
    for (int g = 0; g < kBoxes * 8; ++g) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = store.row_of(tile) + 8 * half, at = g * 4 + half * 2;
        if (row >= tile.last) continue;
        T* to = out + int64_t{row} * args.width + tile.column + g * 8 + column_of_thread();
        if (args.accumulate) {
          const float2 old = load_pair(to);
          sums[at] += old.x;
          sums[at + 1] += old.y;
        }
        if constexpr (sizeof(T) == 4) *reinterpret_cast<float2*>(to) = make_float2(sums[at], sums[at + 1]);
      }
    }
  }
  if constexpr (sizeof(T) == 2) store_rows<kBoxes>(sums, tile, store, tile.expert);
}

#endif

}  // namespace titanium::kernels::grouped
