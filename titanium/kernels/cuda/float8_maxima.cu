#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/float8.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 6;  // per multiprocessor
constexpr int kBatch = 4;   // words that a thread has under way

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) maximum_kernel(AbsoluteMaximumArgs args) {
  const int64_t words = args.dim / N, all = args.rows * words, step = int64_t{gridDim.x} * kThreads;
  Magnitude<T> magnitude;
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < all; first += step * kBatch) {
    Raw<T, N> raw[kBatch] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t at = first + i * step;
      if (at >= all) continue;
      const int64_t row = args.rows == 1 ? 0 : quotient(at, words);
      raw[i] = load<T, N>(static_cast<const T*>(args.x) + row * args.row_stride + (at - row * words) * N);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) magnitude.add(raw[i]);
  }
  raise_to_block<kThreads>(args.amax, magnitude);
}

constexpr int kStripRows = 256;  // that a block treats at a time; a warp takes every eighth
constexpr int kWarps = kThreads / 32;
constexpr int kColumnBatch = 8;

// A block treats strips: kStripRows rows of 32 * N columns, N of them for each lane.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) columns_kernel(ColumnMaximaArgs args) {
  __shared__ unsigned of_column[32 * N];
  const int64_t across = (args.dim + 32 * N - 1) / (32 * N);
  const int64_t strips = across * ((args.rows + kStripRows - 1) / kStripRows);
  for (int64_t strip = blockIdx.x; strip < strips; strip += gridDim.x) {
    const int64_t down = quotient(strip, across), first_column = (strip - down * across) * 32 * N;
    const int64_t column = first_column + threadIdx.x % 32 * N;
    const int64_t end = (down + 1) * kStripRows < args.rows ? (down + 1) * kStripRows : args.rows;
    for (int i = threadIdx.x; i < 32 * N; i += kThreads) of_column[i] = 0;
    __syncthreads();
    ColumnMagnitudes<T, N> magnitudes;
    for (int64_t first = down * kStripRows + threadIdx.x / 32; first < end; first += kWarps * kColumnBatch) {
      Raw<T, N> raw[kColumnBatch] = {};
#pragma unroll
      for (int i = 0; i < kColumnBatch; ++i) {
        const int64_t row = first + i * kWarps;
        if (row < end && column < args.dim)
          raw[i] = load<T, N>(static_cast<const T*>(args.x) + row * args.row_stride + column);
      }
#pragma unroll
      for (int i = 0; i < kColumnBatch; ++i) magnitudes.add(raw[i]);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) atomicMax(&of_column[threadIdx.x % 32 * N + j], magnitudes.bits(j));
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * N && first_column + i < args.dim; i += kThreads)
      atomicMax(reinterpret_cast<unsigned*>(args.amax) + first_column + i, of_column[i]);
    __syncthreads();
  }
}

}  // namespace

void absolute_maximum(const AbsoluteMaximumArgs& args, GpuStream stream) {
  AbsoluteMaximumArgs as_rows = args;
  if (args.row_stride == args.dim || args.rows == 1) {  // one long row
    as_rows.dim = args.rows * args.dim;
    as_rows.rows = as_rows.dim > 0 ? 1 : 0;
    as_rows.row_stride = 0;
  }
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = as_rows.dim % kSize == 0 && vector_aligned(args.x, as_rows.row_stride, sizeof(T));
    const int64_t words = as_rows.rows * (vector ? as_rows.dim / kSize : as_rows.dim);
    launch(vector ? maximum_kernel<T, kSize> : maximum_kernel<T, 1>,
           resident_blocks(ceil_div(words, kThreads * kBatch), kBlocks), kThreads, 0, stream, as_rows);
  });
}

void column_maxima(const ColumnMaximaArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.x, args.row_stride, sizeof(T));
    const int64_t strips = ceil_div(args.dim, 32 * (vector ? kSize : 1)) * ceil_div(args.rows, kStripRows);
    launch(vector ? columns_kernel<T, kSize> : columns_kernel<T, 1>, resident_blocks(strips, kBlocks), kThreads, 0,
           stream, args);
  });
}

}  // namespace titanium::kernels
