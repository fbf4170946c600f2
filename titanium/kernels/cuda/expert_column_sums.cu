#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/expert_column_sums.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 6;  // per multiprocessor
constexpr int kWarps = kThreads / 32;
constexpr int kBatch = 4;  // rows that a warp has under way

constexpr int64_t parts_of(int64_t experts) { return experts * 4 > 512 ? 4 : 512 / experts; }

// Lanes have N columns each, warps every kWarps-th row.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) parts_kernel(ExpertColumnSumsArgs args) {
  constexpr int kColumns = 32 * N;
  __shared__ float of_warp[kWarps][kColumns];
  let_second_kernel_come();
  const int64_t slices = (args.dim + kColumns - 1) / kColumns, parts = parts_of(args.num_experts);
  const int64_t task = quotient(blockIdx.x, slices), slice = blockIdx.x - task * slices;
  const int64_t expert = quotient(task, parts), part = task - expert * parts;
  const int64_t begin = expert > 0 ? args.ends[expert - 1] : 0, count = args.ends[expert] - begin;
  const int64_t end = begin + count * (part + 1) / parts;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t column = slice * kColumns + lane * N;
  const T* rows = static_cast<const T*>(args.rows) + column;
  float sum[N] = {};
  for (int64_t first = begin + count * part / parts + warp; first < end; first += kWarps * kBatch) {
    Raw<T, N> raw[kBatch] = {};
    float weights[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t row = first + i * kWarps;
      weights[i] = 1;
      if (row >= end || column >= args.dim) continue;
      raw[i] = load<T, N>(rows + row * args.row_stride);
      if (args.weights != nullptr)
        weights[i] = args.weights[args.choice_of_row != nullptr ? args.choice_of_row[row] : row];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float values[N];
      to_float(raw[i], values);
      for (int j = 0; j < N; ++j) sum[j] += weights[i] * values[j];
    }
  }
  for (int j = 0; j < N; ++j) of_warp[warp][lane * N + j] = sum[j];
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns && slice * kColumns + i < args.dim; i += kThreads) {
    float total = of_warp[0][i];
    for (int other = 1; other < kWarps; ++other) total += of_warp[other][i];
    args.scratch[task * args.dim + slice * kColumns + i] = total;
  }
}

template <typename D>
__global__ void __launch_bounds__(kThreads) sums_kernel(ExpertColumnSumsArgs args) {
  wait_for_first_kernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.num_experts * args.dim) return;
  const int64_t expert = quotient(i, args.dim), column = i - expert * args.dim, parts = parts_of(args.num_experts);
  const float* part = args.scratch + expert * parts * args.dim + column;
  float sum = 0;
#pragma unroll 8
  for (int64_t p = 0; p < parts; ++p) sum += part[p * args.dim];
  D* out = static_cast<D*>(args.sums) + i;
  *out = static_cast<D>(args.accumulate ? static_cast<float>(*out) + sum : sum);
}

template <typename T, int N>
void launch_parts(const ExpertColumnSumsArgs& args, GpuStream stream) {
  const int64_t tasks = args.num_experts * parts_of(args.num_experts) * ceil_div(args.dim, 32 * N);
  launch(parts_kernel<T, N>, tasks, kThreads, 0, stream, args);
}

}  // namespace

void expert_column_sums(const ExpertColumnSumsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    if (args.dim % kSize == 0 && vector_aligned(args.rows, args.row_stride, sizeof(T))) {
      launch_parts<T, kSize>(args, stream);
    } else {
      launch_parts<T, 1>(args, stream);
    }
  });
  with_type(args.sum_type, [&](auto element) {
    launch_second(sums_kernel<decltype(element)>, ceil_div(args.num_experts * args.dim, kThreads), kThreads, stream,
                  args);
  });
}

int64_t expert_column_sums_scratch_bytes(int64_t num_experts, int64_t dim) {
  return num_experts * parts_of(num_experts) * dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace titanium::kernels
