#include "titanium/kernels/cuda/device/cross_entropy.cuh"

namespace titanium::kernels {
namespace {

using namespace cross;

template <typename T>
__device__ void write_statistics(const CrossEntropyShardArgs& args, int64_t t, const T* row, const SumExp& total) {
  const int64_t column = args.labels[t] - args.first_column;
  const bool here = args.labels[t] != kIgnoredLabel && column >= 0 && column < args.vocabulary;
  args.row_max[t] = total.max;
  args.row_sum[t] = exact_sum(total);
  args.target_logit[t] = here ? static_cast<float>(row[column]) : 0.0F;
}

template <typename T, int N>
__global__ void __launch_bounds__(kWarpThreads, kWarpBlocks) short_statistics_kernel(CrossEntropyShardArgs args) {
  const int64_t t = row_of_warp();
  if (t >= args.rows) return;
  const T* row = static_cast<const T*>(args.logits) + t * args.row_stride;
  const SumExp total = WarpRow<T, N>(row, static_cast<int>(args.vocabulary / N)).sum();
  if (threadIdx.x % 32 == 0) write_statistics(args, t, row, total);
}

constexpr int kShardThreads = 512;
constexpr int kShardBlocks = 2;  // per multiprocessor

template <typename T, int N>
__global__ void __launch_bounds__(kShardThreads, kShardBlocks) statistics_kernel(CrossEntropyShardArgs args) {
  __shared__ SumExpRoom room;
  const int64_t t = blockIdx.x;
  const T* row = static_cast<const T*>(args.logits) + t * args.row_stride;
  const SumExp total = read_row<kShardThreads, T, N>(row, static_cast<int>(args.vocabulary / N),
                                                     static_cast<Raw<T, N>*>(nullptr), 0, room);
  if (threadIdx.x == 0) write_statistics(args, t, row, total);
}

constexpr int kPieceThreads = 256;  // of a piece of a row: a word each

template <typename T, int N>
__global__ void __launch_bounds__(kPieceThreads) gradient_kernel(CrossEntropyGradientArgs args) {
  const int words = static_cast<int>(args.vocabulary / N);
  const int64_t pieces = (words + kPieceThreads - 1) / kPieceThreads;
  const int64_t t = quotient(blockIdx.x, pieces);
  const int word = static_cast<int>(blockIdx.x - t * pieces) * kPieceThreads + static_cast<int>(threadIdx.x);
  if (word >= words) return;
  T* row = static_cast<T*>(args.logits) + t * args.row_stride;
  if (args.labels[t] == kIgnoredLabel) {
    store<T, N>(row + int64_t{word} * N, Raw<T, N>{});
    return;
  }
  write_word<T, N>(row, word, load<T, N>(row + int64_t{word} * N), args.log_sum_exp[t], args.scale,
                   args.labels[t] - args.first_column, args.scale);
}

}  // namespace

void cross_entropy_statistics(const CrossEntropyShardArgs& args, GpuStream stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary, [&](auto raw, auto element) {
    using T = decltype(element);
    constexpr int N = count_of(decltype(raw){});
    if (args.vocabulary / N <= 32 * kWarpWords) {
      launch(short_statistics_kernel<T, N>, ceil_div(args.rows, kWarpRows), kWarpThreads, 0, stream, args);
    } else {
      launch(statistics_kernel<T, N>, args.rows, kShardThreads, 0, stream, args);
    }
  });
}

void cross_entropy_gradient(const CrossEntropyGradientArgs& args, GpuStream stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary, [&](auto raw, auto element) {
    constexpr int N = count_of(decltype(raw){});
    launch(gradient_kernel<decltype(element), N>, args.rows * ceil_div(args.vocabulary / N, kPieceThreads),
           kPieceThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
