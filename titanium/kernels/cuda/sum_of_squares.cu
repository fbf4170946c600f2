#include <cmath>

#include "titanium/kernels/cuda/device/chunk.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/sum_of_squares.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 6;  // per multiprocessor
constexpr int kBatch = 4;   // words that a thread has under way
constexpr int kLastThreads = 1024;

__device__ void add_square(double& sum, float value) {
  const double wide = value;
  sum += wide * wide;
}

template <typename T>
__device__ double chunk_sum(const T* data, ChunkRange range) {
  constexpr int N = kVectorSize<T>;
  double even = 0, odd = 0;
  int64_t scalars = range.begin;
  if (vector_aligned(data, 0, sizeof(T))) {  // chunks begin at a multiple of N
    const int64_t words = (range.end - range.begin) / N;
    scalars += words * N;
    for (int64_t first = threadIdx.x; first < words; first += kThreads * kBatch) {
      Raw<T, N> raw[kBatch] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t word = first + i * kThreads;
        if (word < words) raw[i] = load<T, N>(data + range.begin + word * N);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        float values[N];
        to_float(raw[i], values);
        for (int j = 0; j < N; j += 2) {
          add_square(even, values[j]);
          add_square(odd, values[j + 1]);
        }
      }
    }
  }
  for (int64_t i = scalars + threadIdx.x; i < range.end; i += kThreads) add_square(even, static_cast<float>(data[i]));
  return even + odd;
}

__global__ void __launch_bounds__(kThreads, kBlocks) partials_kernel(SumOfSquaresArgs args) {
  __shared__ BlockSumRoom<double> room;
  double sum = 0;
  for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
    const SumOfSquaresTensor tensor = args.tensors[entry_of_chunk(args.tensors, args.count, chunk)];
    const ChunkRange range = range_of_chunk(tensor, tensor.count, chunk);
    sum += tensor.type == ElementType::kBFloat16 ? chunk_sum(static_cast<const bfloat16*>(tensor.data), range)
                                                 : chunk_sum(static_cast<const float*>(tensor.data), range);
  }
  sum = block_sum<kThreads>(sum, room);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = sum;
}

struct LastArgs {
  const double* partials;
  int64_t count;
  double* result;
};
__global__ void __launch_bounds__(kLastThreads) last_kernel(LastArgs args) {
  __shared__ BlockSumRoom<double> room;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < args.count; i += kLastThreads) sum += args.partials[i];
  sum = block_sum<kLastThreads>(sum, room);
  if (threadIdx.x == 0) *args.result = sum;
}

}  // namespace

void sum_of_squares(const SumOfSquaresArgs& args, GpuStream stream) {
  const int64_t blocks = resident_blocks(args.chunks, kBlocks);
  launch(partials_kernel, blocks, kThreads, 0, stream, args);
  launch(last_kernel, 1, kLastThreads, 0, stream, LastArgs{args.partials, blocks, args.result});
}

int64_t sum_of_squares_scratch_bytes() {
  return int64_t{multiprocessors()} * kBlocks * static_cast<int64_t>(sizeof(double));
}

}  // namespace titanium::kernels
