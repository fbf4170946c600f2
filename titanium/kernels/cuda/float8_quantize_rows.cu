#include "titanium/kernels/cuda/device/float8.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 128;

constexpr int blocks_for(bool column_amax) { return column_amax ? 3 : 5; }  // per multiprocessor

template <Float8Format kFormat, typename T, int N>
__device__ void store_scaled(uint8_t* to, const Raw<T, N>& raw, float scale) {
  float values[N];
  to_float(raw, values);
  Raw<uint8_t, N> out;
  unsigned* words = reinterpret_cast<unsigned*>(&out);
#pragma unroll
  for (int j = 0; j < N; j += 4)
    words[j / 4] =
        to_float8<kFormat>(values[j] * scale, values[j + 1] * scale, values[j + 2] * scale, values[j + 3] * scale);
  store<uint8_t, N>(to, out);
}

// Raises column_amax to what the block's threads have found, through shared memory, so that neighbouring lanes have
// neighbouring columns.
template <typename T, int kGroup, int kHeld>
__device__ void raise_columns(const QuantizeRowsArgs& args, const ColumnMagnitudes<T, kVectorSize<T>> (&found)[kHeld]) {
  constexpr int kSize = kVectorSize<T>;
  unsigned* of_column = dynamic_shared<unsigned>();
  const int dim = static_cast<int>(args.dim);
  for (int column = threadIdx.x; column < dim; column += kThreads) of_column[column] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int column = (threadIdx.x % kGroup + i * kGroup) * kSize;
    if (column >= dim) continue;
#pragma unroll
    for (int j = 0; j < kSize; ++j) atomicMax(&of_column[column + j], found[i].bits(j));
  }
  __syncthreads();
  for (int column = threadIdx.x; column < dim; column += kThreads)
    atomicMax(reinterpret_cast<unsigned*>(args.column_amax) + column, of_column[column]);
}

// A row is treated by a warp or by the whole block, with up to kHeld words of 16 bytes for each thread in registers.
template <typename T, Float8Format kFormat, int kGroup, int kHeld, bool kColumnAmax>
__global__ void __launch_bounds__(kThreads, blocks_for(kColumnAmax)) rows_kernel(QuantizeRowsArgs args) {
  constexpr int kRows = kThreads / kGroup, kSize = kVectorSize<T>;
  static_assert(kGroup == 32 || kGroup == kThreads);
  __shared__ BlockSumRoom<unsigned> rooms[2];
  ColumnMagnitudes<T, kSize> of_column[kHeld];
  const int member = threadIdx.x % kGroup, dim = static_cast<int>(args.dim);
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < args.rows; first += int64_t{gridDim.x} * kRows) {
    const int64_t row = first + threadIdx.x / kGroup;
    const T* x = static_cast<const T*>(args.x) + row * args.row_stride;
    Raw<T, kSize> raw[kHeld] = {};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = (member + i * kGroup) * kSize;
      if (row < args.rows && column < dim) raw[i] = load<T, kSize>(x + column);
    }
    Magnitude<T> magnitude;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      magnitude.add(raw[i]);
      if constexpr (kColumnAmax) of_column[i].add(raw[i]);
    }
    const unsigned amax =
        kGroup == 32 ? warp_max(magnitude.bits()) : block_max<kThreads>(magnitude.bits(), rooms[turn]);
    turn ^= 1;
    if (row >= args.rows) continue;  // of other warps' rows; with one row for the block there are none
    const float scale = float8_scale<kFormat>(__uint_as_float(amax), true);
    if (member == 0) args.reciprocals[row] = 1.0F / scale;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = (member + i * kGroup) * kSize;
      if (column < dim)
        store_scaled<kFormat>(static_cast<uint8_t*>(args.values) + row * args.dim + column, raw[i], scale);
    }
  }
  if constexpr (kColumnAmax) raise_columns<T, kGroup, kHeld>(args, of_column);
}

constexpr int kPlainThreads = 256;
constexpr int kPlainBlocks = 4;  // per multiprocessor

// Any dim, any alignment: reads twice.
template <typename T, Float8Format kFormat>
__global__ void __launch_bounds__(kPlainThreads, kPlainBlocks) plain_rows_kernel(QuantizeRowsArgs args) {
  __shared__ BlockSumRoom<unsigned> rooms[2];
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + row * args.row_stride;
    Magnitude<T> magnitude;
    for (int64_t column = threadIdx.x; column < args.dim; column += kPlainThreads)
      magnitude.add(load_again<T, 1>(x + column));
    const float amax = __uint_as_float(block_max<kPlainThreads>(magnitude.bits(), rooms[turn]));
    turn ^= 1;
    const float scale = float8_scale<kFormat>(amax, true);
    if (threadIdx.x == 0) args.reciprocals[row] = 1.0F / scale;
    for (int64_t column = threadIdx.x; column < args.dim; column += kPlainThreads)
      static_cast<uint8_t*>(args.values)[row * args.dim + column] =
          to_float8<kFormat>(static_cast<float>(x[column]) * scale);
  }
}

template <typename T, Float8Format kFormat, int kGroup, int kHeld>
void launch_rows(const QuantizeRowsArgs& args, GpuStream stream) {
  const bool column_amax = args.column_amax != nullptr;
  const int64_t tasks = ceil_div(args.rows, kThreads / kGroup);
  if (column_amax) {
    launch(rows_kernel<T, kFormat, kGroup, kHeld, true>, resident_blocks(tasks, blocks_for(true)), kThreads,
           args.dim * sizeof(unsigned), stream, args);
  } else {
    launch(rows_kernel<T, kFormat, kGroup, kHeld, false>, tasks, kThreads, 0, stream, args);
  }
}

}  // namespace

void quantize_rows(const QuantizeRowsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    with_format(args.format, [&](auto tag) {
      using T = decltype(element);
      constexpr auto kFormat = decltype(tag)::kFormat;
      constexpr int kSize = kVectorSize<T>;
      const bool vector = args.dim % kSize == 0 && vector_aligned(args.x, args.row_stride, sizeof(T)) &&
                          vector_aligned(args.values, 0, 1);
      const int64_t words = args.dim / kSize;
      if (vector && words <= 32 * 4) {
        launch_rows<T, kFormat, 32, 4>(args, stream);
      } else if (vector && words <= 32 * 16) {
        launch_rows<T, kFormat, 32, 16>(args, stream);
      } else if (vector && words <= kThreads * 16) {
        launch_rows<T, kFormat, kThreads, 16>(args, stream);
      } else {
        launch(plain_rows_kernel<T, kFormat>, resident_blocks(args.rows, kPlainBlocks), kPlainThreads, 0, stream, args);
        if (args.column_amax != nullptr)
          column_maxima({args.type, args.x, args.row_stride, args.rows, args.dim, args.column_amax}, stream);
      }
    });
  });
}

}  // namespace titanium::kernels
