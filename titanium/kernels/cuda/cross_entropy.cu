#include "titanium/kernels/cross_entropy.h"
#include "titanium/kernels/cuda/exponential.cuh"
#include "titanium/kernels/cuda/launch.cuh"
#include "titanium/kernels/cuda/reduce.cuh"
#include "titanium/kernels/cuda/vector.cuh"

namespace titanium::kernels {
namespace {

constexpr int kBatch = 4;  // words that a thread has under way

// The sum of exp(x - max) over the x seen so far. The first maximum is finite, so that no difference of infinities
// arises.
struct SumExp {
  float max = -1e30F;
  float sum = 0;
};

__device__ void add(SumExp& part, const SumExp& other) {
  const float max = fmaxf(part.max, other.max);
  part.sum = part.sum * exp_approximately(part.max - max) + other.sum * exp_approximately(other.max - max);
  part.max = max;
}

template <int N>
__device__ void add(SumExp& part, const float (&values)[N]) {
  float max = values[0];
  for (int j = 1; j < N; ++j) max = fmaxf(max, values[j]);
  if (max > part.max) {
    part.sum *= exp_approximately(part.max - max);
    part.max = max;
  }
  for (int j = 0; j < N; ++j) part.sum += exp_approximately(values[j] - part.max);
}

__device__ SumExp add_lanes(SumExp part) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    SumExp other;
    other.max = __shfl_xor_sync(kWholeWarp, part.max, offset);
    other.sum = __shfl_xor_sync(kWholeWarp, part.sum, offset);
    add(part, other);
  }
  return part;
}

// Rooms are used in turn, as those of block_sum.
struct SumExpRoom {
  float max[32];
  float sum[32];
};
template <int kThreads>
__device__ SumExp add_block(SumExp part, SumExpRoom& room) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  part = add_lanes(part);
  if (lane == 0) {
    room.max[warp] = part.max;
    room.sum[warp] = part.sum;
  }
  __syncthreads();
  SumExp of_warp;
  if (lane < kThreads / 32) {
    of_warp.max = room.max[lane];
    of_warp.sum = room.sum[lane];
  }
  return add_lanes(of_warp);
}

// Reads a row; keeps its first `kept` words in `cache`. A thread finds there only words of its own.
template <int kThreads, typename T, int N>
__device__ SumExp read_row(const T* row, int words, Raw<T, N>* cache, int kept, SumExpRoom& room) {
  SumExp part;
  for (int first = threadIdx.x; first < words; first += kThreads * kBatch) {
    Raw<T, N> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = first + i * kThreads;
      if (word < words) raw[i] = load_again<T, N>(row + int64_t{word} * N);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = first + i * kThreads;
      if (word >= words) break;
      if (word < kept) cache[word] = raw[i];
      float values[N];
      to_float(raw[i], values);
      add(part, values);
    }
  }
  return add_block<kThreads>(part, room);
}

// A word of row = exp(row - shift) * factor, less `scale` at the column `target`, which may be outside.
template <typename T, int N>
__device__ void write_word(T* row, int word, const Raw<T, N>& raw, float shift, float factor, int64_t target,
                           float scale) {
  float values[N];
  to_float(raw, values);
  for (int j = 0; j < N; ++j) values[j] = exp_approximately(values[j] - shift) * factor;
  const int64_t column = int64_t{word} * N;
  if (target >= column && target < column + N) {
    for (int j = 0; j < N; ++j) values[j] -= column + j == target ? scale : 0.0F;
  }
  store_floats<T, N>(row + column, values);
}

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

__device__ float total_scale(float scale, const float* device_scale) {
  return device_scale != nullptr ? scale * *device_scale : scale;
}

// `kept`, the words of a row that fit into the dynamic shared memory, comes with the arguments.
struct RowsArgs {
  CrossEntropyArgs args;
  int kept;
};

template <typename T>
__device__ float target_logit(const CrossEntropyArgs& args, const T* row, int64_t label) {
  const bool known = label >= 0 && label < args.vocabulary;
  return known ? static_cast<float>(row[label]) : __int_as_float(0x7FFFFFFF);
}

constexpr int resident(int threads) { return threads == 1024 ? 1 : 4; }  // per multiprocessor

template <int kThreads, typename T, int N>
__global__ void __launch_bounds__(kThreads, resident(kThreads)) rows_kernel(RowsArgs rows_args) {
  const CrossEntropyArgs& args = rows_args.args;
  __shared__ SumExpRoom rooms[2];
  Raw<T, N>* cache = dynamic_shared<Raw<T, N>>();
  const int words = static_cast<int>(args.vocabulary / N);
  const float scale = total_scale(args.scale, args.device_scale);
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
    if (threadIdx.x == 0) args.row_losses[t] = logf(total.sum) + (total.max - target);
    if (args.write_gradient)
      write_row<kThreads, T, N>(row, words, cache, rows_args.kept, total.max, scale / total.sum, label, scale);
  }
}

constexpr int kWarpThreads = 256;
constexpr int kWarpBlocks = 4;  // per multiprocessor
constexpr int kWarpWords = 8;   // that a lane holds of its row

// Rows of up to 32 * kWarpWords words: each stays in the registers of one warp, so that many are under way.
template <typename T, int N>
__global__ void __launch_bounds__(kWarpThreads, kWarpBlocks) short_rows_kernel(CrossEntropyArgs args) {
  constexpr int kRows = kWarpThreads / 32;
  const int words = static_cast<int>(args.vocabulary / N), lane = threadIdx.x % 32;
  const float scale = total_scale(args.scale, args.device_scale);
  for (int64_t t = int64_t{blockIdx.x} * kRows + threadIdx.x / 32; t < args.rows; t += int64_t{gridDim.x} * kRows) {
    T* row = static_cast<T*>(args.logits) + t * args.row_stride;
    const int64_t label = args.labels[t];
    if (label == kIgnoredLabel) {
      if (lane == 0) args.row_losses[t] = 0;
      if (args.write_gradient) clear_row<32, T, N>(row, words, lane);
      continue;
    }
    Raw<T, N> raw[kWarpWords];
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (lane + i * 32 < words) raw[i] = load<T, N>(row + int64_t{lane + i * 32} * N);
    }
    const float target = target_logit(args, row, label);
    SumExp total;
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (lane + i * 32 >= words) break;
      float values[N];
      to_float(raw[i], values);
      add(total, values);
    }
    total = add_lanes(total);
    if (lane == 0) args.row_losses[t] = logf(total.sum) + (total.max - target);
    if (!args.write_gradient) continue;
    __syncwarp();  // nobody reads the target's logit any more
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (lane + i * 32 >= words) break;
      write_word<T, N>(row, lane + i * 32, raw[i], total.max, scale / total.sum, label, scale);
    }
  }
}

constexpr int kShardThreads = 512;
constexpr int kShardBlocks = 2;  // per multiprocessor

template <typename T, int N>
__global__ void __launch_bounds__(kShardThreads, kShardBlocks) statistics_kernel(CrossEntropyShardArgs args) {
  __shared__ SumExpRoom rooms[2];
  const int words = static_cast<int>(args.vocabulary / N);
  int turn = 0;
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    const T* row = static_cast<const T*>(args.logits) + t * args.row_stride;
    const SumExp total = read_row<kShardThreads, T, N>(row, words, static_cast<Raw<T, N>*>(nullptr), 0, rooms[turn]);
    turn ^= 1;
    if (threadIdx.x != 0) continue;
    const int64_t column = args.labels[t] - args.first_column;
    const bool here = args.labels[t] != kIgnoredLabel && column >= 0 && column < args.vocabulary;
    args.row_max[t] = total.max;
    args.row_sum[t] = total.sum;
    args.target_logit[t] = here ? static_cast<float>(row[column]) : 0.0F;
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kShardThreads, kShardBlocks) gradient_kernel(CrossEntropyGradientArgs args) {
  const int words = static_cast<int>(args.vocabulary / N);
  const float scale = total_scale(args.scale, args.device_scale);
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    T* row = static_cast<T*>(args.logits) + t * args.row_stride;
    if (args.labels[t] == kIgnoredLabel) {
      clear_row<kShardThreads, T, N>(row, words, threadIdx.x);
    } else {
      write_row<kShardThreads, T, N>(row, words, static_cast<const Raw<T, N>*>(nullptr), 0, args.log_sum_exp[t], scale,
                                     args.labels[t] - args.first_column, scale);
    }
  }
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads) sum_losses_kernel(SumLossesArgs args) {
  __shared__ BlockSumRoom<double> room;
  double sum = 0;
  for (int64_t t = threadIdx.x; t < args.rows; t += kSumThreads) sum += static_cast<double>(args.row_losses[t]);
  sum = block_sum<kSumThreads>(sum, room);
  if (threadIdx.x == 0)
    *args.loss += sum * args.scale * (args.device_scale != nullptr ? static_cast<double>(*args.device_scale) : 1.0);
}

// Long rows get a multiprocessor each, and most of its shared memory; of shorter rows it holds several.
template <typename T, int N>
void launch_rows(const CrossEntropyArgs& args, CUstream_st* stream) {
  constexpr int64_t kShortRow = 48 << 10;
  constexpr int kWordBytes = static_cast<int>(sizeof(Raw<T, N>));
  if (args.vocabulary / N <= 32 * kWarpWords) {
    const int64_t blocks = resident_blocks(ceil_div(args.rows, kWarpThreads / 32), kWarpBlocks);
    launch(short_rows_kernel<T, N>, blocks, kWarpThreads, 0, stream, args);
    return;
  }
  const int64_t row_bytes = args.vocabulary * static_cast<int64_t>(sizeof(T));
  const int64_t room = row_bytes <= kShortRow ? kShortRow : largest_shared_bytes(20 << 10);
  const int64_t shared = !args.write_gradient ? 0 : row_bytes < room ? row_bytes : room / 16 * 16;
  const RowsArgs rows{args, static_cast<int>(shared / kWordBytes)};
  if (row_bytes <= kShortRow) {
    launch(rows_kernel<256, T, N>, resident_blocks(args.rows, resident(256)), 256, shared, stream, rows);
  } else {
    launch(rows_kernel<1024, T, N>, resident_blocks(args.rows, resident(1024)), 1024, shared, stream, rows);
  }
}

// Calls `call` with the element type and the elements of an access, both as types.
template <typename Call>
void with_access(ElementType type, const void* logits, int64_t row_stride, int64_t vocabulary, const Call& call) {
  with_type(type, [&](auto element) {
    using T = decltype(element);
    if (vocabulary % kVectorSize<T> == 0 && vector_aligned(logits, row_stride, sizeof(T))) {
      call(Raw<T, kVectorSize<T>>{}, element);
    } else {
      call(Raw<T, 1>{}, element);
    }
  });
}

template <typename T, int N>
constexpr int count_of(const Raw<T, N>&) {
  return N;
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args, CUstream_st* stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary,
              [&](auto raw, auto element) { launch_rows<decltype(element), count_of(decltype(raw){})>(args, stream); });
}

void sum_losses(const SumLossesArgs& args, CUstream_st* stream) {
  launch(sum_losses_kernel, 1, kSumThreads, 0, stream, args);
}

void cross_entropy_statistics(const CrossEntropyShardArgs& args, CUstream_st* stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary, [&](auto raw, auto element) {
    launch(statistics_kernel<decltype(element), count_of(decltype(raw){})>, resident_blocks(args.rows, kShardBlocks),
           kShardThreads, 0, stream, args);
  });
}

void cross_entropy_gradient(const CrossEntropyGradientArgs& args, CUstream_st* stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary, [&](auto raw, auto element) {
    launch(gradient_kernel<decltype(element), count_of(decltype(raw){})>, resident_blocks(args.rows, kShardBlocks),
           kShardThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
