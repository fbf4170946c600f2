#include <type_traits>

#include "titanium/kernels/copy_tensors.h"
#include "titanium/kernels/cuda/device/chunk.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 3;  // per multiprocessor
constexpr int kWidth = 8;   // of what sizes and strides must be multiples for the vector path

// Where element `at` of the rows lies.
__device__ int64_t place(const CopyTensor& tensor, int64_t at, int64_t stride) {
  if (tensor.rows == 1) return at;
  const int64_t row = quotient(at, tensor.row_elements);
  return row * stride + (at - row * tensor.row_elements);
}

template <int N, typename S, typename T, bool kAccumulate>
__device__ void write(T* to, const Raw<S, N>& source, const Raw<T, N>& before) {
  if constexpr (std::is_same_v<S, T> && !kAccumulate) {
    store<T, N>(to, source);
  } else {
    float values[N];
    to_float(source, values);
    if constexpr (kAccumulate) {
      float sum[N];
      to_float(before, sum);
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] += sum[j];
    }
    store_floats<T, N>(to, values);
  }
}

// N elements at `first` and at each of the next kBatch - 1 steps of the block: all are read before any is written.
template <int N, int kBatch, typename S, typename T, bool kAccumulate>
__device__ void copy_batch(const CopyTensor& tensor, int64_t first) {
  const S* source = static_cast<const S*>(tensor.source);
  T* target = static_cast<T*>(tensor.target);
  Raw<S, N> raw[kBatch];
  Raw<T, N> before[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int64_t at = first + i * kThreads * N;
    raw[i] = load<S, N>(source + place(tensor, at, tensor.source_stride));
    if constexpr (kAccumulate) before[i] = load<T, N>(target + place(tensor, at, tensor.target_stride));
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int64_t at = first + i * kThreads * N;
    write<N, S, T, kAccumulate>(target + place(tensor, at, tensor.target_stride), raw[i], before[i]);
  }
}

// Elements begin, begin + N, ... below end.
template <int N, typename S, typename T, bool kAccumulate>
__device__ void copy_range(const CopyTensor& tensor, int64_t begin, int64_t end) {
  // More accesses under way where each writes only 8 bytes.
  constexpr int kBatch = (kAccumulate ? 2 : 4) * (sizeof(S) > sizeof(T) ? 2 : 1);
  int64_t first = begin + threadIdx.x * N;
  for (; first + (kBatch - 1) * kThreads * N < end; first += kBatch * kThreads * N)
    copy_batch<N, kBatch, S, T, kAccumulate>(tensor, first);
#pragma unroll 1
  for (; first < end; first += kThreads * N) copy_batch<N, 1, S, T, kAccumulate>(tensor, first);
}

template <typename S, typename T, bool kAccumulate>
__device__ void copy_chunk(const CopyTensor& tensor, ChunkRange range) {
  const bool whole_words =
      tensor.rows == 1 || (tensor.row_elements | tensor.source_stride | tensor.target_stride) % kWidth == 0;
  int64_t scalars = range.begin;
  if (whole_words && vector_aligned(tensor.source, 0, 1) && vector_aligned(tensor.target, 0, 1)) {
    constexpr int kStep = step_of_widest(sizeof(S) > sizeof(T) ? sizeof(S) : sizeof(T));
    scalars += (range.end - range.begin) / kStep * kStep;
    copy_range<kStep, S, T, kAccumulate>(tensor, range.begin, scalars);
  }
  copy_range<1, S, T, kAccumulate>(tensor, scalars, range.end);
}

template <bool kAccumulate>
__device__ void copy_chunks(const CopyTensor* tensors, int64_t count, int64_t chunks) {
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const CopyTensor tensor = tensors[entry_of_chunk(tensors, count, chunk)];
    const ChunkRange range = range_of_chunk(tensor, tensor.rows * tensor.row_elements, chunk);
    const bool from_bfloat16 = tensor.source_type == ElementType::kBFloat16;
    const bool to_bfloat16 = tensor.target_type == ElementType::kBFloat16;
    if (from_bfloat16 && to_bfloat16) {
      copy_chunk<bfloat16, bfloat16, kAccumulate>(tensor, range);
    } else if (from_bfloat16) {
      copy_chunk<bfloat16, float, kAccumulate>(tensor, range);
    } else if (to_bfloat16) {
      copy_chunk<float, bfloat16, kAccumulate>(tensor, range);
    } else {
      copy_chunk<float, float, kAccumulate>(tensor, range);
    }
  }
}

template <bool kAccumulate>
__global__ void __launch_bounds__(kThreads, kBlocks) copy_kernel(CopyTensorsArgs args) {
  copy_chunks<kAccumulate>(args.tensors, args.count, args.chunks);
}

struct EnclosedListArgs {
  CopyTensor tensors[kCopiesPerLaunch];
  int64_t count;
  int64_t chunks;
};
static_assert(sizeof(EnclosedListArgs) <= 4096, "the arguments of a launch are at most 4 KiB");

template <bool kAccumulate>
__global__ void __launch_bounds__(kThreads, kBlocks)
    copy_enclosed_kernel(const __grid_constant__ EnclosedListArgs args) {
  copy_chunks<kAccumulate>(args.tensors, args.count, args.chunks);
}

}  // namespace

void copy_tensors(const CopyTensorsArgs& args, GpuStream stream) {
  launch(args.accumulate ? copy_kernel<true> : copy_kernel<false>, args.chunks, kThreads, 0, stream, args);
}

void copy_tensors_of_host_list(const CopyTensor* tensors, int64_t count, bool accumulate, GpuStream stream) {
  for (int64_t first = 0; first < count; first += kCopiesPerLaunch) {
    EnclosedListArgs args{};
    args.count = count - first < kCopiesPerLaunch ? count - first : kCopiesPerLaunch;
    for (int64_t i = 0; i < args.count; ++i) args.tensors[i] = tensors[first + i];
    args.chunks = number_chunks(args.tensors, args.count);
    launch(accumulate ? copy_enclosed_kernel<true> : copy_enclosed_kernel<false>, args.chunks, kThreads, 0, stream,
           args);
  }
}

}  // namespace titanium::kernels
