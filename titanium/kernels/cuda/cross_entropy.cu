#include "titanium/kernels/cross_entropy.h"
#include "titanium/kernels/cuda/cluster.cuh"
#include "titanium/kernels/cuda/exponential.cuh"
#include "titanium/kernels/cuda/launch.cuh"
#include "titanium/kernels/cuda/reduce.cuh"
#include "titanium/kernels/cuda/ring.cuh"
#include "titanium/kernels/cuda/vector.cuh"

namespace titanium::kernels {
namespace {

constexpr int kBatch = 4;  // words that a thread has under way

// The sum of exp(x - max) over the x seen so far. The first maximum is finite, so that no difference of infinities
// arises. An exponential is the power of two of x * log2(e) - in_log2(max), one instruction before it. in_log2 is
// rounded: where maxima are exchanged, differences are those of in_log2, and `sum` is relative to it; exact_sum is
// relative to max.
struct SumExp {
  float max = -1e30F;
  float sum = 0;
};

// Rounded by itself: inside a difference the compiler would otherwise leave one of the two products exact.
__device__ float in_log2(float x) { return __fmul_rn(x, kLog2OfE); }

__device__ void raise_max(SumExp& part, float max) {
  part.sum *= exp2_approximately(in_log2(part.max) - in_log2(max));
  part.max = max;
}

__device__ void add(SumExp& part, const SumExp& other) {
  SumExp more = other;
  const float max = fmaxf(part.max, other.max);
  raise_max(part, max);
  raise_max(more, max);
  part.sum += more.sum;
}

__device__ float exact_sum(const SumExp& part) {
  return part.sum * exp2_approximately(fmaf(-part.max, kLog2OfE, in_log2(part.max)));
}

template <int N>
__device__ void add(SumExp& part, const float (&values)[N]) {
  float max = values[0];
  for (int j = 1; j < N; ++j) max = fmaxf(max, values[j]);
  if (max > part.max) raise_max(part, max);
  const float shift = in_log2(part.max);
  for (int j = 0; j < N; ++j) part.sum += exp2_approximately(fmaf(values[j], kLog2OfE, -shift));
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
  for (int j = 0; j < N; ++j) values[j] = exp2_approximately(fmaf(values[j], kLog2OfE, -in_log2(shift))) * factor;
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
    if (threadIdx.x == 0) args.row_losses[t] = logf(exact_sum(total)) + (total.max - target);
    if (args.write_gradient)
      write_row<kThreads, T, N>(row, words, cache, rows_args.kept, total.max, scale / total.sum, label, scale);
  }
}

// Rows that a cluster of kCluster blocks keeps in its rings. While a row's gradient is written, the next row's words
// come into the slots that become free; while the blocks wait for each other, each sums those that are there.
constexpr int kRingThreads = 1024;
constexpr int kRingWarps = kRingThreads / 32;
constexpr int kRingSlots = 14;
constexpr int kRingWords = 8;                         // the most that a thread has of a row,
constexpr int kEarlyWords = kRingSlots - kRingWords;  // and those of the next row that are there beside them

// This thread's words of the rows, and what it has asked for: up to number `word` of row `row`.
template <int kCluster, typename T, int N>
class RowWords {
 public:
  static constexpr int kStep = kCluster * kRingThreads;

  __device__ RowWords(const CrossEntropyArgs& args, int of_row)
      : args_(args),
        ring_(dynamic_shared<uint4>()),
        first_(static_cast<int>(blockIdx.x % kCluster) * kRingThreads + static_cast<int>(threadIdx.x)),
        existing_((static_cast<int>(args.vocabulary / N) - first_ + kStep - 1) / kStep),
        of_row_(of_row),
        row_(blockIdx.x / kCluster) {}

  __device__ int place(int word) const { return first_ + word * kStep; }
  __device__ bool exists(int word) const { return word < existing_; }
  __device__ static int slot_after(int slot, int words) {
    return slot + words < kRingSlots ? slot + words : slot + words - kRingSlots;
  }

  // Asks for the next word; every call closes a batch.
  __device__ void ask() {
    if (row_ < args_.rows && exists(word_)) {
      const T* row = static_cast<const T*>(args_.logits) + row_ * args_.row_stride;
      ring_.ask(slot_, row + int64_t{place(word_)} * N);
    }
    ring_.close_batch();
    slot_ = slot_after(slot_, 1);
    if (++word_ == of_row_) {
      word_ = 0;
      row_ += gridDim.x / kCluster;
    }
  }
  __device__ Raw<T, N> read(int slot) const { return ring_.template read<T>(slot); }

  // Of the row whose first word is in `slot`, before and after the words of the row before it were given up.
  __device__ void add_early(int slot, SumExp& part) const {
    ring_.template wait_for_all_but<0>();
    add_words(slot, 0, of_row_ < kEarlyWords ? of_row_ : kEarlyWords, part);
  }
  __device__ void add_late(int slot, SumExp& part) const {
    ring_.template wait_for_all_but<kEarlyWords>();
    add_words(slot, kEarlyWords, of_row_, part);
  }

 private:
  __device__ void add_words(int slot, int first, int end, SumExp& part) const {
#pragma unroll 2
    for (int word = first; word < end && exists(word); ++word) {
      float values[N];
      to_float(read(slot_after(slot, word)), values);
      add(part, values);
    }
  }

  const CrossEntropyArgs& args_;
  Ring<kRingThreads> ring_;
  int first_, existing_, of_row_;
  int64_t row_;
  int word_ = 0, slot_ = 0;
};

// Sums over the blocks of a cluster, in two steps between which a block can do something else. A warp tells its sum to
// all blocks; no sum is negative, so its sign is the message's mark, which changes from use to use. Two rooms are used
// in turn: nobody can be two rows ahead.
template <int kCluster>
class ClusterRoom {
 public:
  // By all threads, before the cluster meets.
  __device__ void open() {
    if (threadIdx.x < kCluster * kRingWarps) of_warps_[threadIdx.x] = marked(SumExp{}, 1);
  }
  __device__ void give(SumExp part, int use) {
    part = add_lanes(part);
    const unsigned lane = threadIdx.x % 32, warp = blockIdx.x % kCluster * kRingWarps + threadIdx.x / 32;
    if (lane < kCluster) tell(lane, &of_warps_[warp], marked(part, use));
  }
  __device__ SumExp take(int use) const {
    SumExp part;
#pragma unroll
    for (int block = 0; block < kCluster; ++block) {
      const uint64_t* place = &of_warps_[block * kRingWarps + threadIdx.x % 32];
      uint64_t message = hear(place);
      while (message >> 63 != (use & 1)) message = hear(place);
      SumExp of_warp;
      of_warp.max = __uint_as_float(static_cast<unsigned>(message));
      of_warp.sum = __uint_as_float(static_cast<unsigned>(message >> 32) & 0x7FFFFFFFU);
      add(part, of_warp);
    }
    __syncwarp();
    return add_lanes(part);
  }

 private:
  __device__ static uint64_t marked(const SumExp& part, int use) {
    const unsigned sum = (__float_as_uint(part.sum) & 0x7FFFFFFFU) | static_cast<unsigned>(use & 1) << 31;
    return uint64_t{sum} << 32 | __float_as_uint(part.max);
  }
  uint64_t of_warps_[kCluster * kRingWarps];
};

struct RingArgs {
  CrossEntropyArgs args;
  int words_of_thread;
};

template <int kCluster, typename T, int N>
__global__ void __launch_bounds__(kRingThreads, 1) ring_rows_kernel(const __grid_constant__ RingArgs ring_args) {
  const CrossEntropyArgs& args = ring_args.args;
  __shared__ ClusterRoom<kCluster> rooms[2];
  const int of_row = ring_args.words_of_thread;
  const int64_t step = gridDim.x / kCluster;
  RowWords<kCluster, T, N> words(args, of_row);
  for (int i = 0; i < kRingSlots; ++i) words.ask();
  for (ClusterRoom<kCluster>& room : rooms) room.open();
  meet_cluster();
  const float scale = total_scale(args.scale, args.device_scale);
  const bool first_of_cluster = blockIdx.x % kCluster == 0 && threadIdx.x == 0;
  SumExp ahead;
  words.add_early(0, ahead);
  int slot = 0, turn = 0;
  for (int64_t t = blockIdx.x / kCluster; t < args.rows; t += step, ++turn) {
    ClusterRoom<kCluster>& room = rooms[turn % 2];
    T* row = static_cast<T*>(args.logits) + t * args.row_stride;
    const int64_t label = args.labels[t];
    const bool ignored = label == kIgnoredLabel;
    const float target = first_of_cluster && !ignored ? target_logit(args, row, label) : 0.0F;
    words.add_late(slot, ahead);
    room.give(ahead, turn / 2);
    ahead = SumExp{};
    if (t + step < args.rows) words.add_early(words.slot_after(slot, of_row), ahead);
    const SumExp total = room.take(turn / 2);
    if (first_of_cluster) args.row_losses[t] = ignored ? 0.0F : logf(exact_sum(total)) + (total.max - target);
    for (int i = 0; i < of_row; ++i, slot = words.slot_after(slot, 1)) {
      if (words.exists(i)) {
        if (ignored) {
          store<T, N>(row + int64_t{words.place(i)} * N, Raw<T, N>{});
        } else {
          write_word<T, N>(row, words.place(i), words.read(slot), total.max, scale / total.sum, label, scale);
        }
      }
      words.ask();
    }
  }
}

constexpr int kWarpThreads = 256;
constexpr int kWarpBlocks = 4;  // per multiprocessor
constexpr int kWarpWords = 8;   // that a lane holds of its row

// A row of up to 32 * kWarpWords words, in the registers of one warp, so that many rows are under way.
template <typename T, int N>
struct WarpRow {
  __device__ WarpRow(const T* row, int words) : words(words) {
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (word(i) < words) raw[i] = load<T, N>(row + int64_t{word(i)} * N);
    }
  }
  __device__ static int word(int i) { return static_cast<int>(threadIdx.x) % 32 + i * 32; }
  __device__ SumExp sum() const {
    SumExp part;
#pragma unroll
    for (int i = 0; i < kWarpWords; ++i) {
      if (word(i) >= words) break;
      float values[N];
      to_float(raw[i], values);
      add(part, values);
    }
    return add_lanes(part);
  }
  Raw<T, N> raw[kWarpWords];
  int words;
};

constexpr int kWarpRows = kWarpThreads / 32;  // of a block
__device__ int64_t row_of_warp() { return int64_t{blockIdx.x} * kWarpRows + threadIdx.x / 32; }

template <typename T, int N>
__global__ void __launch_bounds__(kWarpThreads, kWarpBlocks) short_rows_kernel(CrossEntropyArgs args) {
  const int words = static_cast<int>(args.vocabulary / N), lane = threadIdx.x % 32;
  const float scale = total_scale(args.scale, args.device_scale);
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
  const float scale = total_scale(args.scale, args.device_scale);
  write_word<T, N>(row, word, load<T, N>(row + int64_t{word} * N), args.log_sum_exp[t], scale,
                   args.labels[t] - args.first_column, scale);
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads) sum_losses_kernel(SumLossesArgs args) {
  __shared__ BlockSumRoom<double> room;
  wait_for_first_kernel();
  double sum = 0;
#pragma unroll 8
  for (int64_t t = threadIdx.x; t < args.rows; t += kSumThreads) sum += static_cast<double>(args.row_losses[t]);
  sum = block_sum<kSumThreads>(sum, room);
  if (threadIdx.x == 0)
    *args.loss += sum * args.scale * (args.device_scale != nullptr ? static_cast<double>(*args.device_scale) : 1.0);
}

// False if the rows do not fit, or the device has no clusters or too little shared memory.
template <int kCluster, typename T, int N>
bool launch_ring(const CrossEntropyArgs& args, CUstream_st* stream) {
  const int64_t words = ceil_div(args.vocabulary / N, int64_t{kRingThreads} * kCluster);
  if (words > kRingWords) return false;
  constexpr ClusterShape kShape{kCluster, kRingThreads, Ring<kRingThreads>::bytes(kRingSlots)};
  constexpr auto kKernel = ring_rows_kernel<kCluster, T, N>;
  static const int kClusters = resident_clusters(kKernel, kShape);
  if (kClusters == 0) return false;
  launch_clusters(kKernel, kShape, args.rows < kClusters ? args.rows : kClusters, stream,
                  RingArgs{args, static_cast<int>(words)});
  return true;
}

// Long rows get one or more multiprocessors each, which keep them in shared memory; of shorter rows one holds several.
template <typename T, int N>
void launch_rows(const CrossEntropyArgs& args, CUstream_st* stream) {
  constexpr int64_t kShortRow = 48 << 10;
  if (args.vocabulary / N <= 32 * kWarpWords) {
    launch(short_rows_kernel<T, N>, ceil_div(args.rows, kWarpRows), kWarpThreads, 0, stream, args);
    return;
  }
  const int64_t row_bytes = args.vocabulary * static_cast<int64_t>(sizeof(T));
  if constexpr (N == kVectorSize<T>) {
    if (args.write_gradient && row_bytes > kShortRow &&
        (launch_ring<1, T, N>(args, stream) || launch_ring<2, T, N>(args, stream) ||
         launch_ring<4, T, N>(args, stream)))
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
  launch_second(sum_losses_kernel, 1, kSumThreads, stream, args);
}

void cross_entropy_statistics(const CrossEntropyShardArgs& args, CUstream_st* stream) {
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

void cross_entropy_gradient(const CrossEntropyGradientArgs& args, CUstream_st* stream) {
  with_access(args.type, args.logits, args.row_stride, args.vocabulary, [&](auto raw, auto element) {
    constexpr int N = count_of(decltype(raw){});
    launch(gradient_kernel<decltype(element), N>, args.rows * ceil_div(args.vocabulary / N, kPieceThreads),
           kPieceThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
