#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/merge_attention.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 6;  // per multiprocessor
constexpr int kAtOnce = 4;  // vectors of heads that a warp has under way
constexpr int kWarps = kThreads / 32;

// One head of one query.
struct Place {
  int64_t batch, query, head;
};

__device__ Place place_of(const MergeAttentionArgs& args, int64_t item) {
  const int64_t token = quotient(item, args.heads), batch = quotient(token, args.queries);
  return {batch, token - batch * args.queries, item - token * args.heads};
}

template <typename T>
__device__ T* out_at(const MergeAttentionArgs& args, const AttentionResult& result, const Place& at) {
  return static_cast<T*>(result.out) + at.batch * result.out_batch_stride +
         (at.query * args.heads + at.head) * args.head_dim;
}

__device__ float* sum_at(const AttentionResult& result, const Place& at) {
  return result.log_sum_exp + at.batch * result.sum_batch_stride + at.head * result.sum_head_stride + at.query;
}

// A warp takes kAtOnce heads at a time, its lanes N elements of each.
template <typename T, typename P, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) merge_kernel(MergeAttentionArgs args) {
  const int64_t items = args.batch * args.queries * args.heads;
  const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t first = warp * kAtOnce; first < items; first += int64_t{gridDim.x} * kWarps * kAtOnce) {
    const int here = items - first < kAtOnce ? static_cast<int>(items - first) : kAtOnce;
    float weight[kAtOnce], sum[kAtOnce];
    Place at[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      at[i] = place_of(args, first + (i < here ? i : 0));
      const float whole = *sum_at(args.whole, at[i]), part = *sum_at(args.part, at[i]);
      weight[i] = 1.0F / (1.0F + expf(whole - part));
      sum[i] = fmaxf(whole, part) + log1pf(expf(-fabsf(whole - part)));
    }
    for (int64_t column = int64_t{lane} * N; column < args.head_dim; column += 32 * N) {
      Raw<T, N> whole[kAtOnce];
      Raw<P, N> part[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i >= here) break;
        whole[i] = load<T, N>(out_at<T>(args, args.whole, at[i]) + column);
        part[i] = load<P, N>(out_at<P>(args, args.part, at[i]) + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i >= here) break;
        float values[N], more[N];
        to_float(whole[i], values);
        to_float(part[i], more);
        for (int j = 0; j < N; ++j) values[j] += weight[i] * (more[j] - values[j]);
        store_floats<T, N>(out_at<T>(args, args.whole, at[i]) + column, values);
      }
    }
    __syncwarp();  // all lanes have read the sums
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i == lane && i < here) *sum_at(args.whole, at[i]) = sum[i];
    }
  }
}

bool aligned(const MergeAttentionArgs& args, const AttentionResult& result, int width) {
  const int64_t bytes = element_size(result.type);
  return args.head_dim % width == 0 && vector_aligned(result.out, result.out_batch_stride, bytes) &&
         args.head_dim * bytes % 16 == 0;
}

template <typename T, typename P>
void merge(const MergeAttentionArgs& args, GpuStream stream) {
  constexpr int kWidth = step_of_widest(sizeof(T) > sizeof(P) ? sizeof(T) : sizeof(P));
  const bool vector = aligned(args, args.whole, kWidth) && aligned(args, args.part, kWidth);
  const int64_t tasks = ceil_div(args.batch * args.queries * args.heads, kAtOnce * kWarps);
  launch(vector ? merge_kernel<T, P, kWidth> : merge_kernel<T, P, 1>, resident_blocks(tasks, kBlocks), kThreads, 0,
         stream, args);
}

}  // namespace

void merge_attention(const MergeAttentionArgs& args, GpuStream stream) {
  with_type(args.whole.type, [&](auto whole) {
    with_type(args.part.type, [&](auto part) { merge<decltype(whole), decltype(part)>(args, stream); });
  });
}

}  // namespace titanium::kernels
