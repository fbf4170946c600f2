// Kernels that pass over rows and gather something for each column, sample by sample: each block has a slice of the
// columns and a share of the rows of one sample, and writes its part of the sums; sum_parts.cuh adds the parts.
#pragma once

#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {

struct ColumnGrid {
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 4;  // per multiprocessor
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kBatch = 4;  // rows that a warp has under way

  // Lanes have `columns` columns each, warps every kWarps-th row of the block's share.
  ColumnGrid(int64_t rows, int64_t rows_in_sample, int64_t columns_in_row, int columns)
      : rows_of_sample(rows_in_sample), dim(columns_in_row), samples(rows / rows_in_sample) {
    slices = ceil_div(dim, int64_t{32} * columns);
    const int64_t most = ceil_div(rows_of_sample, kWarps * kBatch), wanted = multiprocessors() * kBlocks;
    parts = ceil_div(wanted, slices * samples);
    parts = parts < most ? parts : most;
  }
  int64_t blocks() const { return slices * samples * parts; }
  int64_t scratch_bytes() const { return parts * samples * dim * static_cast<int64_t>(sizeof(float)); }

  int64_t rows_of_sample, dim, samples, slices, parts;
};

// `visit` reads kInputs arrays (`input(which, row)` is where row begins), may write, and gives its share of the sums:
// `share(row, column, values, out)`. The sums of a part lie at scratch[part][sample][column].
template <typename T, int N, typename Visit>
__device__ void sum_columns(const ColumnGrid& grid, const Visit& visit, float* scratch) {
  constexpr int kColumns = 32 * N, kInputs = Visit::kInputs, kWarps = ColumnGrid::kWarps, kBatch = ColumnGrid::kBatch;
  __shared__ float of_warp[kWarps][kColumns];
  const int64_t task = quotient(blockIdx.x, grid.slices), slice = blockIdx.x - task * grid.slices;
  const int64_t sample = quotient(task, grid.parts), part = task - sample * grid.parts;
  const int64_t first_row = sample * grid.rows_of_sample,
                begin = first_row + quotient(grid.rows_of_sample * part, grid.parts),
                end = first_row + quotient(grid.rows_of_sample * (part + 1), grid.parts);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t column = slice * kColumns + lane * N;
  float sum[N] = {};
  if (column < grid.dim) {
    const auto of_sample = visit.of_sample(sample, column);
    for (int64_t first = begin + warp; first < end; first += kWarps * kBatch) {
      Raw<T, N> raw[kBatch][kInputs] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t row = first + i * kWarps;
        if (row >= end) continue;
#pragma unroll
        for (int which = 0; which < kInputs; ++which) raw[i][which] = load<T, N>(visit.input(which, row) + column);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t row = first + i * kWarps;
        if (row < end) visit.add_share(row, column, of_sample, raw[i], sum);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) of_warp[warp][lane * N + j] = sum[j];
  __syncthreads();
  float* out = scratch + (part * grid.samples + sample) * grid.dim + slice * kColumns;
  for (int i = static_cast<int>(threadIdx.x); i < kColumns && slice * kColumns + i < grid.dim;
       i += ColumnGrid::kThreads) {
    float total = of_warp[0][i];
    for (int other = 1; other < kWarps; ++other) total += of_warp[other][i];
    out[i] = total;
  }
}

}  // namespace titanium::kernels
