// Cross-entropy of long rows, which clusters of blocks keep on the chip (compute capability 9.0).
#pragma once

#include "titanium/kernels/cuda/device/cluster.cuh"
#include "titanium/kernels/cuda/device/cross_entropy.cuh"
#include "titanium/kernels/cuda/device/ring.cuh"

namespace titanium::kernels::cross {

// Rows that a cluster of kCluster blocks keeps in its rings. While a row's gradient is written, the next row's words
// come into the slots that become free; while the blocks wait for each other, each sums those that are there.
constexpr int kRingThreads = 1024;
constexpr int kRingWarps = kRingThreads / 32;
constexpr int kRingSlots = 14;

// This thread's words of the rows, at most kWords of each, and what it has asked for: up to number `word` of row `row`.
template <int kCluster, int kWords, typename T, int N>
class RowWords {
 public:
  static constexpr int kStep = kCluster * kRingThreads;
  static constexpr int kEarlyWords = kRingSlots - kWords;  // of the next row that are there beside those of a row

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
    close_batch();
    slot_ = slot_after(slot_, 1);
    if (++word_ == of_row_) {
      word_ = 0;
      row_ += gridDim.x / kCluster;
    }
  }
  __device__ Raw<T, N> read(int slot) const { return ring_.template read<T>(slot); }

  // Add the words of the row whose first word is in `slot`: before, and after, the previous row has released its words.
  __device__ void add_early(int slot, SumExp& part) const {
    wait_for_all_but<0>();
    add_words(slot, 0, of_row_ < kEarlyWords ? of_row_ : kEarlyWords, part);
  }
  __device__ void add_late(int slot, SumExp& part) const {
    wait_for_all_but<kEarlyWords>();
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

template <int kCluster, int kWords, typename T, int N>
__global__ void __launch_bounds__(kRingThreads, 1) ring_rows_kernel(const __grid_constant__ RingArgs ring_args) {
  const CrossEntropyArgs& args = ring_args.args;
  __shared__ ClusterRoom<kCluster> rooms[2];
  const int of_row = ring_args.words_of_thread;
  const int64_t step = gridDim.x / kCluster;
  RowWords<kCluster, kWords, T, N> words(args, of_row);
  for (int i = 0; i < kRingSlots; ++i) words.ask();
  for (ClusterRoom<kCluster>& room : rooms) room.open();
  meet_cluster();
  const float scale = args.scale;
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

// False if the rows do not fit, or the device has no clusters or too little shared memory.
template <int kCluster, int kWords, typename T, int N>
bool launch_ring(const CrossEntropyArgs& args, GpuStream stream) {
  const int64_t words = ceil_div(args.vocabulary / N, int64_t{kRingThreads} * kCluster);
  if (words > kWords) return false;
  constexpr ClusterShape kShape{kCluster, kRingThreads, Ring<kRingThreads>::bytes(kRingSlots)};
  constexpr auto kKernel = ring_rows_kernel<kCluster, kWords, T, N>;
  static const int kClusters = resident_clusters(kKernel, kShape);
  if (kClusters == 0) return false;
  launch_clusters(kKernel, kShape, args.rows < kClusters ? args.rows : kClusters, stream,
                  RingArgs{args, static_cast<int>(words)});
  return true;
}

}  // namespace titanium::kernels::cross
