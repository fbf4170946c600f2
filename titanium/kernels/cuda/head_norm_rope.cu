#include <type_traits>

#include "titanium/kernels/cuda/device/ring.cuh"
#include "titanium/kernels/cuda/device/rms_norm.cuh"
#include "titanium/kernels/cuda/device/rotate.cuh"
#include "titanium/kernels/cuda/device/sum_parts.cuh"
#include "titanium/kernels/head_norm_rope.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBackwardBlocks = 2;  // per multiprocessor
constexpr int kBundle = 4;  // heads of a token that a group of lanes treats, which share its entries of the table

// A head is treated by kLanes lanes, each with the same 128-bit word of both halves.
template <typename T, int kLanes>
struct HeadCut {
  static constexpr int kSize = kVectorSize<T>, kHalf = kLanes * kSize, kDim = 2 * kHalf;
  static constexpr int kGroups = kThreads / kLanes;  // of a block
  __device__ static int group() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kLanes * kSize; }
};

__host__ __device__ constexpr int64_t bundles_of(int64_t heads) { return (heads + kBundle - 1) / kBundle; }

// Neighbouring heads of a token, up to kBundle of them.
struct Bundle {
  int64_t first_row, position, sequence;
  int head;   // the first one
  int count;  // of heads; none: there is no such bundle

  __device__ Bundle(int64_t bundle, int64_t tokens, int64_t heads, int64_t seq_len) {
    const int64_t each = bundles_of(heads), token = quotient(bundle, each);
    head = static_cast<int>(bundle - token * each) * kBundle;
    count = token < tokens ? static_cast<int>(min(int64_t{kBundle}, heads - head)) : 0;
    first_row = token * heads + head;
    sequence = quotient(token, seq_len);
    position = token - sequence * seq_len;
  }
  // The element at which the first head begins.
  __device__ int64_t begin(const HeadStrides& strides, int64_t head_dim) const {
    if (strides.token == 0) return first_row * head_dim;
    return sequence * strides.sequence + position * strides.token + head * head_dim;
  }
};

template <typename Cut, typename T>
__device__ T* word(T* heads, int64_t begin, int half) {
  return heads + begin + half * Cut::kHalf + Cut::column();
}

// The first q_blocks blocks treat queries, the others keys.
template <typename Args>
struct Task {
  Args args;
  int q_blocks;
};

// This thread's entries of the table for a position: those of the pairs between both words, or of the pairs within
// each.
template <typename Cut, bool kNeighbours>
__device__ void load_table(const float* table, int64_t position, float (&out)[2 * Cut::kSize]) {
  const float* row = table + position * Cut::kDim;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t column = kNeighbours ? half * Cut::kHalf + Cut::column() : 2 * Cut::column() + half * Cut::kSize;
    float entries[Cut::kSize];
    to_float(load_again<float, Cut::kSize>(row + column), entries);
    for (int j = 0; j < Cut::kSize; ++j) out[half * Cut::kSize + j] = entries[j];
  }
}

template <bool kNeighbours, int N>
__device__ void rotate_words(float (&values)[2][N], const float (&table)[2 * N], bool inverse) {
  if constexpr (kNeighbours) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float entries[N];
      for (int j = 0; j < N; ++j) entries[j] = table[half * N + j];
      rotate(values[half], entries, inverse);
    }
  } else {
    rotate_halves(values[0], values[1], table, inverse);
  }
}

template <typename T, int kLanes, bool kNeighbours>
__global__ void __launch_bounds__(kThreads) forward_kernel(Task<HeadNormRopeForwardArgs> task) {
  using Cut = HeadCut<T, kLanes>;
  constexpr int kSize = Cut::kSize;
  alignas(16) __shared__ float weight[Cut::kDim];
  const HeadNormRopeForwardArgs& args = task.args;
  const bool of_q = static_cast<int>(blockIdx.x) < task.q_blocks;
  const HeadNormRopeForwardArgs::Heads heads = of_q ? args.q : args.k;
  const int64_t index = (int64_t{blockIdx.x} - (of_q ? 0 : task.q_blocks)) * Cut::kGroups + Cut::group();
  const Bundle bundle(index, args.tokens, heads.count, args.seq_len);
  const int64_t from = bundle.begin(heads.x_strides, Cut::kDim), to = bundle.begin(heads.y_strides, Cut::kDim);
  Raw<T, kSize> raw[kBundle][2] = {};
#pragma unroll
  for (int i = 0; i < kBundle; ++i) {
    if (i >= bundle.count) break;
    for (int half = 0; half < 2; ++half)
      raw[i][half] = load<T, kSize>(word<Cut>(static_cast<const T*>(heads.x), from + i * Cut::kDim, half));
  }
  float table[2 * kSize] = {}, of_half[2][kSize];
  if (bundle.count > 0) load_table<Cut, kNeighbours>(args.table, bundle.position, table);
  for (int column = threadIdx.x; column < Cut::kDim; column += kThreads) {
    float one[1];
    load_floats<1>(heads.weight, args.weight_type, column, one);
    weight[column] = one[0];
  }
  __syncthreads();
  for (int half = 0; half < 2; ++half)
    to_float(load_again<float, kSize>(weight + half * Cut::kHalf + Cut::column()), of_half[half]);
#pragma unroll
  for (int i = 0; i < kBundle; ++i) {
    float values[2][kSize], squares = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to_float(raw[i][half], values[half]);
      for (int j = 0; j < kSize; ++j) squares += values[half][j] * values[half][j];
    }
    const float rstd = rsqrtf(lanes_sum<kLanes>(squares) / static_cast<float>(Cut::kDim) + args.eps);
    if (i >= bundle.count) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      for (int j = 0; j < kSize; ++j) values[half][j] = rms::normalised(values[half][j], rstd, of_half[half][j]);
    }
    rotate_words<kNeighbours>(values, table, /*inverse=*/false);
    for (int half = 0; half < 2; ++half)
      store_floats<T, kSize>(word<Cut>(static_cast<T*>(heads.y), to + i * Cut::kDim, half), values[half]);
    if (threadIdx.x % kLanes == 0) heads.rstd[bundle.first_row + i] = rstd;
  }
}

enum Stream { kDy, kX, kStreams };

// The words of the bundle to come are under way, into a ring of one bundle.
template <typename T, int kLanes>
class BundleAhead {
 public:
  static constexpr int64_t kBytes = Ring<kThreads>::bytes(kBundle * kStreams * 2);

  explicit __device__ BundleAhead(const HeadNormRopeBackwardArgs::Heads& heads)
      : heads_(heads), ring_(dynamic_shared<uint4>()) {}

  // Head i of the bundle. Every call closes a batch, also for heads that do not exist.
  __device__ void ask(const Bundle& bundle, int i) const {
    if (i < bundle.count) {
      using Cut = HeadCut<T, kLanes>;
      const int64_t dy = bundle.begin(heads_.dy_strides, Cut::kDim) + i * Cut::kDim;
      const int64_t x = bundle.begin(heads_.x_strides, Cut::kDim) + i * Cut::kDim;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ring_.ask(slot(i, kDy, half), word<Cut>(static_cast<const T*>(heads_.dy), dy, half));
        ring_.ask(slot(i, kX, half), word<Cut>(static_cast<const T*>(heads_.x), x, half));
      }
    }
    close_batch();
  }
  __device__ void wait() const { wait_for_all_but<kBundle - 1>(); }
  __device__ void read(int i, Stream stream, float (&out)[2][kVectorSize<T>]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) to_float(ring_.template read<T>(slot(i, stream, half)), out[half]);
  }

 private:
  __device__ static int slot(int i, Stream stream, int half) { return (i * kStreams + stream) * 2 + half; }

  const HeadNormRopeBackwardArgs::Heads& heads_;
  Ring<kThreads> ring_;
};

// Writes the block's part of dweight to row blockIdx.x of the scratch.
template <typename Cut, int kLanes>
__device__ void write_part(float* scratch, float (&dweight)[2][Cut::kSize]) {
  __shared__ float of_warp[kThreads / 32][Cut::kDim];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < Cut::kSize; ++j) {
      float sum = dweight[half][j];
#pragma unroll
      for (int offset = kLanes; offset < 32; offset *= 2) sum += __shfl_xor_sync(kWholeWarp, sum, offset);
      if (threadIdx.x % 32 < kLanes) of_warp[threadIdx.x / 32][half * Cut::kHalf + Cut::column() + j] = sum;
    }
  }
  __syncthreads();
  for (int column = threadIdx.x; column < Cut::kDim; column += kThreads) {
    float sum = 0;
    for (int warp = 0; warp < kThreads / 32; ++warp) sum += of_warp[warp][column];
    scratch[int64_t{blockIdx.x} * Cut::kDim + column] = sum;
  }
}

template <typename T, int kLanes, bool kNeighbours>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks) backward_kernel(Task<HeadNormRopeBackwardArgs> task) {
  using Cut = HeadCut<T, kLanes>;
  constexpr int kSize = Cut::kSize;
  let_second_kernel_come();
  const HeadNormRopeBackwardArgs& args = task.args;
  const bool of_q = static_cast<int>(blockIdx.x) < task.q_blocks;
  const HeadNormRopeBackwardArgs::Heads heads = of_q ? args.q : args.k;
  const int64_t step = (of_q ? task.q_blocks : int64_t{gridDim.x} - task.q_blocks) * Cut::kGroups;
  int64_t index = (int64_t{blockIdx.x} - (of_q ? 0 : task.q_blocks)) * Cut::kGroups + Cut::group();
  const auto bundle_at = [&](int64_t at) { return Bundle(at, args.tokens, heads.count, args.seq_len); };
  const BundleAhead<T, kLanes> ahead(heads);
  Bundle bundle = bundle_at(index);
#pragma unroll
  for (int i = 0; i < kBundle; ++i) ahead.ask(bundle, i);
  float weight[2][kSize], dweight[2][kSize] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < kSize; ++j) {
      float one[1];
      load_floats<1>(heads.weight, args.weight_type, half * Cut::kHalf + Cut::column() + j, one);
      weight[half][j] = one[0];
    }
  }
  Magnitude<T> magnitude;
  // Lanes of a warp have the same number of bundles to do, or one less.
  for (; __ballot_sync(kWholeWarp, bundle.count > 0) != 0; index += step) {
    const Bundle next = bundle_at(index + step);
    const int64_t to = bundle.begin(heads.dx_strides, Cut::kDim);
    float table[2 * kSize] = {}, rstds[kBundle] = {};
    if (bundle.count > 0) load_table<Cut, kNeighbours>(args.table, bundle.position, table);
#pragma unroll
    for (int i = 0; i < kBundle; ++i) {
      if (i < bundle.count) rstds[i] = heads.rstd[bundle.first_row + i];
    }
#pragma unroll
    for (int i = 0; i < kBundle; ++i) {
      const bool here = i < bundle.count;
      const float rstd = rstds[i];
      float dy[2][kSize] = {}, x[2][kSize] = {}, dot = 0;
      ahead.wait();
      if (here) {
        ahead.read(i, kDy, dy);
        ahead.read(i, kX, x);
      }
      rotate_words<kNeighbours>(dy, table, /*inverse=*/true);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < kSize; ++j) {
          x[half][j] *= rstd;
          const float share = dy[half][j] * x[half][j];
          dweight[half][j] += share;
          dot += share * weight[half][j];
        }
      }
      const float mean = lanes_sum<kLanes>(dot) / static_cast<float>(Cut::kDim);
      ahead.ask(next, i);
      if (!here) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < kSize; ++j) dy[half][j] = (dy[half][j] * weight[half][j] - x[half][j] * mean) * rstd;
        const auto dx = from_float<T, kSize>(dy[half]);
        store<T, kSize>(word<Cut>(static_cast<T*>(heads.dx), to + i * Cut::kDim, half), dx);
        if (heads.amax != nullptr) magnitude.add(dx);
      }
    }
    bundle = next;
  }
  write_part<Cut, kLanes>(args.scratch, dweight);
  raise_to_block<kThreads>(heads.amax, magnitude);
}

// Calls `call` with a value of the element type, the number of lanes of a head, and whether neighbours are pairs, as
// types.
template <typename Args, typename Call>
void with_lanes(const Args& args, const Call& call) {
  with_type(args.type, [&](auto element) {
    const auto with_pairs = [&](auto lanes) {
      args.neighbours ? call(element, lanes, std::true_type{}) : call(element, lanes, std::false_type{});
    };
    switch (args.head_dim / (2 * kVectorSize<decltype(element)>)) {
      case 4:
        return with_pairs(std::integral_constant<int, 4>{});
      case 8:
        return with_pairs(std::integral_constant<int, 8>{});
      case 16:
        return with_pairs(std::integral_constant<int, 16>{});
      default:
        return;
    }
  });
}

// Blocks that share out the bundles of queries and keys evenly.
struct BackwardGrid {
  explicit BackwardGrid(const HeadNormRopeBackwardArgs& args) {
    const int64_t groups = kThreads / (args.head_dim * element_size(args.type) / 32);
    const int64_t of_q = bundles_of(args.q.count), bundles = of_q + bundles_of(args.k.count);
    const int64_t all = resident_blocks(ceil_div(args.tokens * bundles, groups), kBackwardBlocks);
    const auto at_least_one = [](int64_t blocks) { return blocks > 1 ? blocks : 1; };
    q = at_least_one((all * of_q + bundles / 2) / bundles);
    k = at_least_one(all - q);
  }
  int64_t q, k;
};

}  // namespace

void head_norm_rope_forward(const HeadNormRopeForwardArgs& args, GpuStream stream) {
  with_lanes(args, [&](auto element, auto lanes, auto neighbours) {
    using T = decltype(element);
    constexpr int64_t kGroups = HeadCut<T, lanes()>::kGroups;
    const auto blocks = [&](int64_t heads) { return ceil_div(args.tokens * bundles_of(heads), kGroups); };
    launch(forward_kernel<T, lanes(), neighbours()>, blocks(args.q.count) + blocks(args.k.count), kThreads, 0, stream,
           Task<HeadNormRopeForwardArgs>{args, static_cast<int>(blocks(args.q.count))});
  });
}

void head_norm_rope_backward(const HeadNormRopeBackwardArgs& args, GpuStream stream) {
  const BackwardGrid blocks(args);
  with_lanes(args, [&](auto element, auto lanes, auto neighbours) {
    using T = decltype(element);
    launch(backward_kernel<T, lanes(), neighbours()>, blocks.q + blocks.k, kThreads, BundleAhead<T, lanes()>::kBytes,
           stream, Task<HeadNormRopeBackwardArgs>{args, static_cast<int>(blocks.q)});
  });
  const float* parts_of_k = args.scratch + blocks.q * args.head_dim;
  launch_sum_of_parts<2>({{{args.scratch, blocks.q, args.q.dweight, args.q.accumulate_dweight},
                           {parts_of_k, blocks.k, args.k.dweight, args.k.accumulate_dweight}},
                          args.dweight_type,
                          args.head_dim},
                         stream);
}

int64_t head_norm_rope_scratch_bytes(const HeadNormRopeBackwardArgs& args) {
  const BackwardGrid blocks(args);
  return (blocks.q + blocks.k) * args.head_dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace titanium::kernels
