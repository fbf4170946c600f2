#include "titanium/kernels/cuda/device/cross_entropy_ring.cuh"

namespace titanium::kernels {
namespace {

using namespace cross;

template <int kThreads, typename T, int N>
__device__ void write_row(T* row, int words, const Raw<T, N>* cache, int kept, float shift, float factor,
                          int64_t target, float scale) {
  for (int first = threadIdx.x; first < words; first += kThreads * kBatch) {
    Raw<T, N> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = first + i * kThreads;
      if (word < words) raw[i] = word < kept ? cache[word] : load<T, N>(row + int64_t{word} * N);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = first + i * kThreads;
      if (word >= words) break;
      write_word<T, N>(row, word, raw[i], shift, factor, target, scale);
    }
  }
}

template <int kThreads, typename T, int N>
__device__ void clear_row(T* row, int words, int thread) {
  const float zeros[N] = {};
  for (int word = thread; word < words; word += kThreads) store_floats<T, N>(row + int64_t{word} * N, zeros);
}

// `kept`, the words of a row that fit into the dynamic shared memory, comes with the arguments.
struct RowsArgs {
  CrossEntropyArgs args;
  int kept;
};

constexpr int resident(int threads) { return threads == 1024 ? 1 : 4; }  // per multiprocessor

template <int kThreads, typename T, int N>
__global__ void __launch_bounds__(kThreads, resident(kThreads)) rows_kernel(RowsArgs rows_args) {
  const CrossEntropyArgs& args = rows_args.args;
  __shared__ SumExpRoom rooms[2];
  Raw<T, N>* cache = dynamic_shared<Raw<T, N>>();
  const int words = static_cast<int>(args.vocabulary / N);
  const float scale = args.scale;
  int turn = 0;
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    T* row = static_cast<T*>(args.logits) + t * args.row_stride;
    const int64_t label = args.labels[t];
    if (label == kIgnoredLabel) {
      if (threadIdx.x == 0) args.row_losses[t] = 0;
      if (args.write_gradient) clear_row<kThreads, T, N>(row, words, threadIdx.x);
      continue;
    }
    const float target = target_logit(args, row, label);
    const SumExp total = read_row<kThreads, T, N>(row, words, cache, rows_args.kept, rooms[turn]);
    turn ^= 1;
    if (threadIdx.x == 0) args.row_losses[t] = logf(exact_sum(total)) + (total.max - target);
    if (args.write_gradient)
      write_row<kThreads, T, N>(row, words, cache, rows_args.kept, total.max, scale / total.sum, label, scale);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kWarpThreads, kWarpBlocks) short_rows_kernel(CrossEntropyArgs args) {
  const int words = static_cast<int>(args.vocabulary / N), lane = threadIdx.x % 32;
  const float scale = args.scale;
  const int64_t t = row_of_warp();
  if (t >= args.rows) return;
  T* row = static_cast<T*>(args.logits) + t * args.row_stride;
  const int64_t label = args.labels[t];
  if (label == kIgnoredLabel) {
    if (lane == 0) args.row_losses[t] = 0;
    if (args.write_gradient) clear_row<32, T, N>(row, words, lane);
    return;
  }
  const WarpRow<T, N> held(row, words);
  const float target = target_logit(args, row, label);
  const SumExp total = held.sum();
  if (lane == 0) args.row_losses[t] = logf(exact_sum(total)) + (total.max - target);
  if (!args.write_gradient) return;
  __syncwarp();  // nobody reads the target's logit any more
#pragma unroll
  for (int i = 0; i < kWarpWords; ++i) {
    if (held.word(i) >= words) break;
    write_word<T, N>(row, held.word(i), held.raw[i], total.max, scale / total.sum, label, scale);
  }
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads) sum_losses_kernel(SumLossesArgs args) {
  __shared__ BlockSumRoom<double> room;
  wait_for_first_kernel();
  double sum = 0;
#pragma unroll 8
  for (int64_t t = threadIdx.x; t < args.rows; t += kSumThreads) sum += static_cast<double>(args.row_losses[t]);
  sum = block_sum<kSumThreads>(sum, room);
  if (threadIdx.x == 0) *args.loss += sum * args.scale;
}

// Long rows get one or more multiprocessors each, which keep them in shared memory; of shorter rows one holds several.
template <typename T, int N>
void launch_rows(const CrossEntropyArgs& args, GpuStream stream) {
  constexpr int64_t kShortRow = 48 << 10;
  if (args.vocabulary / N <= 32 * kWarpWords) {
    launch(short_rows_kernel<T, N>, ceil_div(args.rows, kWarpRows), kWarpThreads, 0, stream, args);
    return;
  }
  const int64_t row_bytes = args.vocabulary * static_cast<int64_t>(sizeof(T));
  if constexpr (N == kVectorSize<T>) {
    if (args.write_gradient && row_bytes > kShortRow &&
        (launch_ring<1, 8, T, N>(args, stream) || launch_ring<2, 8, T, N>(args, stream) ||
         launch_ring<2, 10, T, N>(args, stream) || launch_ring<4, 8, T, N>(args, stream)))
      return;
  }
  const int64_t room = row_bytes <= kShortRow ? kShortRow : largest_shared_bytes(20 << 10);
  const int64_t shared = !args.write_gradient ? 0 : row_bytes < room ? row_bytes : room / 16 * 16;
  const RowsArgs rows{args, static_cast<int>(shared / static_cast<int64_t>(sizeof(Raw<T, N>)))};
  if (row_bytes <= kShortRow) {
    launch(rows_kernel<256, T, N>, resident_blocks(args.rows, resident(256)), 256, shared, stream, rows);
  } else {
    launch(rows_kernel<1024, T, N>, resident_blocks(args.rows, resident(1024)), 1024, shared, stream, rows);
  }
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args, GpuStream stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary,
              [&](auto raw, auto element) { launch_rows<decltype(element), count_of(decltype(raw){})>(args, stream); });
}

void sum_losses(const SumLossesArgs& args, GpuStream stream) {
  launch_second(sum_losses_kernel, 1, kSumThreads, stream, args);
}

}  // namespace titanium::kernels
