#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/sort_by_expert.h"

namespace titanium::kernels {
namespace {

// Note [Counting sort]
// Choices are cut into one run per block, and these into one run per warp. The first kernel counts the experts of each
// block's run. In the second, every block sums what lies before it in all counts, which are few because there are at
// most kMostBlocks blocks however many choices there are; it counts its warps' runs once more, so that every warp knows
// the row of its first choice for each expert; and then walks through its choices, 32 at a time.
constexpr int kThreads = 512;  // one for each expert
constexpr int kWarps = kThreads / 32;
constexpr int kMostBlocks = 128;
constexpr int kLeastPerBlock = 4 * kThreads;
static_assert(kThreads == kMostSortedExperts);

struct Cut {
  int64_t per_block;  // choices; a multiple of the threads
  int64_t blocks;
};
__host__ __device__ Cut cut_of(int64_t choices) {
  const int64_t wanted = (choices + kMostBlocks - 1) / kMostBlocks;
  const int64_t per_block = wanted <= kLeastPerBlock ? kLeastPerBlock : (wanted + kThreads - 1) / kThreads * kThreads;
  const int64_t blocks = (choices + per_block - 1) / per_block;
  return {per_block, blocks > 0 ? blocks : 1};
}

// Calls `call(choice, expert, peers)` for the choices of this warp, 32 at a time; `peers` are the lanes of the same
// expert. The expert of lanes without a choice is -1.
template <typename Call>
__device__ void for_each_choice(const SortByExpertArgs& args, const Call& call) {
  const int64_t per_block = cut_of(args.choices).per_block, per_warp = per_block / kWarps;
  const int64_t begin = blockIdx.x * per_block + threadIdx.x / 32 * per_warp;
  const int64_t end = begin + per_warp < args.choices ? begin + per_warp : args.choices;
  const auto expert_at = [&](int64_t choice) { return choice < end ? args.experts[choice] : -1; };
  int next = expert_at(begin + threadIdx.x % 32);
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t choice = first + threadIdx.x % 32;
    const int expert = next;
    next = expert_at(choice + 32);  // under way while this one is treated
    call(choice, expert, __match_any_sync(kWholeWarp, expert));
  }
}

// Lanes of the same expert before this one.
__device__ int before(unsigned peers) { return __popc(peers & ((1U << threadIdx.x % 32) - 1U)); }

using Counts = int[kWarps][kMostSortedExperts];

// counts[warp][expert] of the block's run. One lane adds for all of its expert, so nothing is added at the same time.
__device__ void count_runs(const SortByExpertArgs& args, Counts& counts) {
  for (int warp = 0; warp < kWarps; ++warp) counts[warp][threadIdx.x] = 0;
  __syncthreads();
  int* own = counts[threadIdx.x / 32];
  for_each_choice(args, [&](int64_t, int expert, unsigned peers) {
    if (expert >= 0 && before(peers) == 0) own[expert] += __popc(peers);
    __syncwarp();
  });
  __syncthreads();
}

// Scratch is [blocks, num_experts].
__global__ void __launch_bounds__(kThreads) count_kernel(SortByExpertArgs args) {
  __shared__ Counts counts;
  let_second_kernel_come();
  count_runs(args, counts);
  if (threadIdx.x >= args.num_experts) return;
  int sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += counts[warp][threadIdx.x];
  args.scratch[blockIdx.x * args.num_experts + threadIdx.x] = sum;
}

// Sums over all threads with a lower number. All threads must call it.
__device__ int exclusive_block_sum(int value, int (&of_warp)[kWarps]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kWholeWarp, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int earlier = 0;
  for (int i = 0; i < warp; ++i) earlier += of_warp[i];
  return earlier + sum - value;
}

// The first row of this block's run for the expert with the thread's number. Writes `ends` in the first block.
__device__ int first_row(const SortByExpertArgs& args) {
  __shared__ int totals[kThreads], earlier[kThreads], of_warp[kWarps];
  const int experts = static_cast<int>(args.num_experts), blocks = static_cast<int>(gridDim.x);
  // Several threads share the blocks of an expert, where there are threads enough.
  const int parts = kThreads / experts, part = threadIdx.x / experts, expert = threadIdx.x % experts;
  int total = 0, here = 0;
  if (part < parts) {
#pragma unroll 8
    for (int block = part; block < blocks; block += parts) {
      const int count = args.scratch[block * experts + expert];
      total += count;
      here += block < blockIdx.x ? count : 0;
    }
  }
  totals[threadIdx.x] = total;
  earlier[threadIdx.x] = here;
  __syncthreads();
  const bool owns = threadIdx.x < experts;
  for (int i = 1; i < parts && owns; ++i) {
    total += totals[i * experts + threadIdx.x];
    here += earlier[i * experts + threadIdx.x];
  }
  const int start = exclusive_block_sum(owns ? total : 0, of_warp);
  if (blockIdx.x == 0 && owns) args.ends[threadIdx.x] = start + total;
  return start + here;
}

__global__ void __launch_bounds__(kThreads) scatter_kernel(SortByExpertArgs args) {
  __shared__ Counts rows;  // counts first; then the row of the next choice of each warp for each expert
  count_runs(args, rows);
  wait_for_first_kernel();
  int row = first_row(args);
  for (int warp = 0; warp < kWarps; ++warp) {
    const int count = rows[warp][threadIdx.x];
    rows[warp][threadIdx.x] = row;
    row += count;
  }
  __syncthreads();
  int* own = rows[threadIdx.x / 32];
  for_each_choice(args, [&](int64_t choice, int expert, unsigned peers) {
    const int rank = before(peers), at = expert >= 0 ? own[expert] + rank : 0;
    __syncwarp();  // all have read
    if (expert >= 0) {
      if (rank == 0) own[expert] += __popc(peers);
      args.row_of_choice[choice] = at;
      args.choice_of_row[at] = static_cast<int32_t>(choice);
    }
    __syncwarp();
  });
}

}  // namespace

void sort_by_expert(const SortByExpertArgs& args, GpuStream stream) {
  const int64_t blocks = cut_of(args.choices).blocks;
  launch(count_kernel, blocks, kThreads, 0, stream, args);
  launch_second(scatter_kernel, blocks, kThreads, stream, args);
}

int64_t sort_by_expert_scratch_bytes(int64_t choices, int64_t num_experts) {
  return cut_of(choices).blocks * num_experts * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace titanium::kernels
