// Columns of groups of rows become lines of float8, tile by tile: largest magnitudes first, then the lines.
//
// A Source is where rows come from, a struct that travels with the launch:
//   Words     what has to be read for kWidth elements of a row, as it is in memory
//   kOutputs  how many results it has
//   kBlocks   of the kernel that makes lines, per multiprocessor
//   kSlicesFirst  whether tiles of the same columns run one after the other, so that rows which several groups have are
//             found in the cache
//   load(row, column) and values(words, out), which gives floats of every result that have been rounded to the type in
//   which they would have been stored; `row` is the number among all rows.
#pragma once

#include "titanium/kernels/cuda/device/expert_row.cuh"
#include "titanium/kernels/cuda/device/float8_tile.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/expert_float8.h"

namespace titanium::kernels::lines {

using tile::kAcross;
using tile::kDepth;
using tile::kSize;
using tile::kThreads;
using tile::kWidth;
using tile::kWord;

constexpr int kDown = kThreads / kAcross;
constexpr auto kE4m3 = Float8Format::kE4m3;
static_assert(kFloat8GroupMultiple == kSize);

struct Output {
  uint8_t* lines;
  float* amax;  // [groups, dim]
  float* reciprocals;
};

// Rows of experts, or matrices that all have as many rows.
struct Groups {
  const int32_t* ends;  // null: matrices of `rows_of_group`
  const int32_t* line_ends;
  int64_t groups;
  int64_t rows_of_group;
  int64_t dim;
  int64_t length;  // of a line
  int64_t tiles;   // of kSize rows, at most
};
inline Groups groups_of_experts(const int32_t* ends, const int32_t* line_ends, int64_t groups, int64_t rows,
                                int64_t dim, int64_t length) {
  return {ends, line_ends, groups, 0, dim, length, float8_line_length(rows, groups) / kSize};
}
inline Groups groups_of_matrices(int64_t matrices, int64_t rows, int64_t dim) {
  return {nullptr, nullptr, matrices, rows, dim, rows, matrices * ceil_div(rows, kSize)};
}

template <typename Source>
struct LinesArgs {
  Source source;
  Groups groups;
  Output outputs[Source::kOutputs];
};

// Up to kSize rows of a group and kSize columns.
struct Spot {
  int64_t group;
  int64_t row;     // the first one, among all rows
  int64_t count;   // of rows; none: there is nothing to do
  int64_t filled;  // elements of the lines, zeros among them
  bool is_first;   // of the group
  int64_t line;    // where the lines begin that column 0 would have
  int64_t column;
};

// All lanes must call it.
template <bool kSlicesFirst>
__device__ Spot find_spot(const Groups& of) {
  const int64_t slices = (of.dim + kSize - 1) / kSize;
  const int64_t tile = kSlicesFirst ? blockIdx.x % of.tiles : blockIdx.x / slices;
  Spot spot = {};
  spot.column = (kSlicesFirst ? blockIdx.x / of.tiles : blockIdx.x % slices) * kSize;
  if (of.ends == nullptr) {
    const int64_t tiles = (of.rows_of_group + kSize - 1) / kSize;
    spot.group = tile / tiles;
    const int64_t first = (tile - spot.group * tiles) * kSize;
    spot.row = spot.group * of.rows_of_group + first;
    spot.filled = spot.count = min(static_cast<int64_t>(kSize), of.rows_of_group - first);
    spot.is_first = first == 0;
    spot.line = spot.group * of.dim * of.rows_of_group + first;
    return spot;
  }
  spot.group = expert_of_row(of.line_ends, of.groups, tile * kSize);
  if (spot.group == of.groups) return spot;
  const int64_t first = tile * kSize - (spot.group > 0 ? of.line_ends[spot.group - 1] : 0);
  spot.row = (spot.group > 0 ? of.ends[spot.group - 1] : 0) + first;
  spot.count = min(static_cast<int64_t>(kSize), of.ends[spot.group] - spot.row);
  spot.filled = kSize;
  spot.is_first = first == 0;
  spot.line = tile * kSize;
  return spot;
}

// Raises the largest magnitudes of the columns of a group. All threads must call it.
template <typename T>
__device__ void raise_column_maxima(float* amax, const Spot& spot, int64_t dim,
                                    const ColumnMagnitudes<T, kWidth>& found) {
  __shared__ unsigned bits_of_column[kSize];
  if (threadIdx.x < kSize) bits_of_column[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const unsigned bits = max(found.bits(j), __shfl_xor_sync(kWholeWarp, found.bits(j), kAcross));
    if (threadIdx.x % 32 < kAcross) atomicMax(&bits_of_column[threadIdx.x % kAcross * kWidth + j], bits);
  }
  __syncthreads();
  const int64_t column = spot.column + threadIdx.x;
  if (threadIdx.x >= kSize || column >= dim) return;
  unsigned* to = reinterpret_cast<unsigned*>(amax) + spot.group * dim + column;
  const unsigned bits = bits_of_column[threadIdx.x];
  if (bits > *static_cast<volatile unsigned*>(to)) atomicMax(to, bits);
}

template <typename Source>
__global__ void __launch_bounds__(kThreads, 4) maxima_kernel(LinesArgs<Source> args) {
  constexpr int kRows = kSize / kDown;
  const Spot spot = find_spot<Source::kSlicesFirst>(args.groups);
  if (spot.count <= 0) return;
  const int64_t column = spot.column + threadIdx.x % kAcross * kWidth;
  typename Source::Words words[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = threadIdx.x / kAcross + i * kDown;
    if (row < spot.count && column < args.groups.dim) words[i] = args.source.load(spot.row + row, column);
  }
  ColumnMagnitudes<typename Source::Element, kWidth> found;
#pragma unroll
  for (int i = 0; i < kRows; ++i) found.add(words[i]);
  raise_column_maxima(args.outputs[0].amax, spot, args.groups.dim, found);
}

// The scales of the columns of a spot, of which the first one of a group writes the reciprocals.
__device__ inline void find_scales(const Output& out, const Spot& spot, int64_t dim, float (&of_column)[kSize]) {
  const int64_t column = spot.column + threadIdx.x;
  if (threadIdx.x >= kSize || column >= dim) return;
  const float scale = float8_scale<kE4m3>(out.amax[spot.group * dim + column], /*power_of_two=*/true);
  of_column[threadIdx.x] = scale;
  if (spot.is_first) out.reciprocals[spot.group * dim + column] = 1.0F / scale;
}

__device__ inline void write_lines(const tile::Transposed& transposed, uint8_t* lines, const Spot& spot, int64_t dim,
                                   int64_t length) {
  constexpr int kWords = kSize / kWord;
  const int word = threadIdx.x % kWords;
  if (word * kWord >= spot.filled) return;
#pragma unroll
  for (int i = 0; i < kSize * kWords / kThreads; ++i) {
    const int column = threadIdx.x / kWords + i * (kThreads / kWords);
    if (spot.column + column >= dim) continue;
    uint8_t* line = lines + (spot.column + column) * length + spot.line;
    *reinterpret_cast<uint4*>(line + word * kWord) = transposed.take(column, word);
  }
}

// Zeros outside.
__device__ inline uint2 scaled_word(const float (&values)[kWidth], const float* scale, bool inside) {
  float v[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) v[j] = inside ? values[j] * scale[j] : 0.0F;
  return {to_float8<kE4m3>(v[0], v[1], v[2], v[3]), to_float8<kE4m3>(v[4], v[5], v[6], v[7])};
}

template <typename Source>
struct Room {
  tile::Transposed transposed[Source::kOutputs];
  float scales[Source::kOutputs][kSize];
};

template <typename Source>
__global__ void __launch_bounds__(kThreads, Source::kBlocks) lines_kernel(LinesArgs<Source> args) {
  Room<Source>& room = *dynamic_shared<Room<Source>>();
  const Spot spot = find_spot<Source::kSlicesFirst>(args.groups);
  if (spot.count <= 0) return;
  const int64_t dim = args.groups.dim;
  for (int k = 0; k < Source::kOutputs; ++k) find_scales(args.outputs[k], spot, dim, room.scales[k]);
  __syncthreads();
  const int across = threadIdx.x % kAcross;
  const int64_t column = spot.column + across * kWidth;
#pragma unroll
  for (int pass = 0; pass < tile::kPasses; ++pass) {
    const int word = threadIdx.x / kAcross + pass * kDown;
    typename Source::Words words[kDepth] = {};
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      const int64_t row = word * kDepth + depth;
      if (row < spot.count && column < dim) words[depth] = args.source.load(spot.row + row, column);
    }
    uint2 rows[Source::kOutputs][kDepth];
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      float values[Source::kOutputs][kWidth];
      args.source.values(words[depth], values);
      const bool inside = word * kDepth + depth < spot.count;
#pragma unroll
      for (int k = 0; k < Source::kOutputs; ++k)
        rows[k][depth] = scaled_word(values[k], room.scales[k] + across * kWidth, inside);
    }
#pragma unroll
    for (int k = 0; k < Source::kOutputs; ++k) room.transposed[k].put(across, word, rows[k]);
  }
  __syncthreads();
  for (int k = 0; k < Source::kOutputs; ++k)
    write_lines(room.transposed[k], args.outputs[k].lines, spot, dim, args.groups.length);
}

template <typename Source>
void launch_maxima(const LinesArgs<Source>& args, GpuStream stream) {
  launch(maxima_kernel<Source>, args.groups.tiles * ceil_div(args.groups.dim, kSize), kThreads, 0, stream, args);
}
template <typename Source>
void launch_lines(const LinesArgs<Source>& args, GpuStream stream) {
  launch(lines_kernel<Source>, args.groups.tiles * ceil_div(args.groups.dim, kSize), kThreads, sizeof(Room<Source>),
         stream, args);
}

}  // namespace titanium::kernels::lines
