// Columns of groups of rows become lines of float8, tile by tile, once their largest magnitudes are known.
//
// A Source is where rows come from, a struct that travels with the launch:
//   Words     what has to be read for kWidth elements of a row, as it is in memory
//   kOutputs  how many results it has
//   kBlocks   of the kernel that makes lines, per multiprocessor
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

// Rows of experts.
struct Groups {
  const int32_t* ends;
  const int32_t* line_ends;
  int64_t groups;
  int64_t dim;
  int64_t length;  // of a line
  int64_t tiles;   // of kSize rows, at most
};
inline Groups groups_of_experts(const int32_t* ends, const int32_t* line_ends, int64_t groups, int64_t rows,
                                int64_t dim, int64_t length) {
  return {ends, line_ends, groups, dim, length, float8_line_length(rows, groups) / kSize};
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
__device__ inline Spot find_spot(const Groups& of) {
  const int64_t slices = (of.dim + kSize - 1) / kSize, tile = blockIdx.x / slices;
  Spot spot = {};
  spot.column = blockIdx.x % slices * kSize;
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
  const Spot spot = find_spot(args.groups);
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
void launch_lines(const LinesArgs<Source>& args, GpuStream stream) {
  launch(lines_kernel<Source>, args.groups.tiles * ceil_div(args.groups.dim, kSize), kThreads, sizeof(Room<Source>),
         stream, args);
}

}  // namespace titanium::kernels::lines
