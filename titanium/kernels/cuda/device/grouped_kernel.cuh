// The kernel of grouped products: Note [Tiles of grouped products].
#pragma once

#include "titanium/kernels/cuda/device/cluster.cuh"
#include "titanium/kernels/cuda/device/grouped_store.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"

namespace titanium::kernels::grouped {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <typename Kind>
__device__ void copy_rows_operand(const KernelArgs& args, Stage& stage, uint64_t* full, const Tile& tile, int part,
                                  int depth) {
  if constexpr (Kind::kReadsRows == Reads::kAcross) {
    tensor_core::copy_box(stage.rows, args.rows[0], tile.row, depth, 0, full);
    tensor_core::copy_box(stage.rows + kBoxBytes, args.rows[0], tile.row + 64, depth, 0, full);
  } else {
    tensor_core::copy_box(stage.rows, args.rows[part], depth, tile.row, 0, full);
  }
}

// One step of the ring, by one thread.
template <typename Kind>
__device__ void copy_step(const KernelArgs& args, Stage& stage, uint64_t* full, const Tile& tile, int block, int steps,
                          unsigned rank) {
  constexpr Reads kReads = Kind::kReadsColumns;
  constexpr int kWidth = copy_rows(kReads), kCopies = kColumns / kWidth;
  // Two results have as many columns of both matrices, and all of them.
  const int columns = Kind::kForm == Form::kTwoResults ? 2 * tile.columns : tile.columns;
  const int copies = columns <= 0 ? 0 : (columns + kWidth - 1) / kWidth;
  tensor_core::arrive_expecting(full, (tile.is_idle() ? 0 : kRowBytes) + copies * copy_bytes(kReads));
  const int part = Kind::kForm == Form::kInputGrad && block >= steps ? 1 : 0;
  const int depth = (Kind::kOfWeight ? tile.begin : 0) + (block - part * steps) * Kind::kDepth;
  if (!tile.is_idle()) copy_rows_operand<Kind>(args, stage, full, tile, part, depth);
  const int first = tile.shared ? static_cast<int>(rank) * (kCopies / kBlocks) : 0;
  const int end = tile.shared ? first + kCopies / kBlocks : copies;
  for (int i = first; i < end; ++i) {
    const CUtensorMap& map = args.columns[Kind::kForm == Form::kTwoResults ? i : part];
    const int column = tile.column + (Kind::kForm == Form::kTwoResults ? 0 : kWidth * i);
    const int x = kReads == Reads::kAlong ? depth : column;
    const int y = kReads == Reads::kAlong ? column : depth;
    const int z = Kind::kOfWeight ? 0 : tile.expert;
    unsigned char* to = stage.columns + i * copy_bytes(kReads);
    if (tile.shared) {
      tensor_core::copy_box_to((1 << kBlocks) - 1, to, map, x, y, z, full);
    } else {
      tensor_core::copy_box(to, map, x, y, z, full);
    }
  }
}

template <typename Kind>
__device__ void copy_tiles(const KernelArgs& args, Shared& shared, unsigned rank) {
  Tiles<Kind> tiles(args, rank);
  const int steps = (args.depth + Kind::kDepth - 1) / Kind::kDepth;
  Turn turn;
  for (Tile tile; tiles.next(tile);) {
    for (int block = 0; block < tile.blocks; ++block, turn.advance()) {
      tensor_core::wait_for_phase(&shared.free[turn.stage], turn.phase ^ 1);
      copy_step<Kind>(args, shared.stages[turn.stage], &shared.full[turn.stage], tile, block, steps, rank);
    }
  }
}

// Rows from `valid` on of all boxes of a stage become zero. By each group that multiplies, so that none has to wait for
// another that may have nothing to do.
__device__ inline void clear_rows(Stage& stage, int valid, int group) {
  const int words = (64 - valid) * (tensor_core::kBoxRowBytes / 16);
  constexpr int kBoxes = kStageBytes / kBoxBytes;
  for (int i = static_cast<int>(threadIdx.x) % 128; i < kBoxes * words; i += 128) {
    const int box = i / words, word = i % words;
    *reinterpret_cast<uint4*>(stage.rows + box * kBoxBytes + valid * tensor_core::kBoxRowBytes + word * 16) = uint4{};
  }
  tensor_core::fence_shared_stores();
  meet_group(group);
}

// kBoxes: of columns.
template <typename Kind, int kBoxes>
__device__ void multiply_step(float (&sums)[kBoxes * 32], const Stage& stage, int group) {
  using namespace tensor_core;
  constexpr Element kElement = Kind::kElement;
  constexpr Reads kA = Kind::kReadsRows, kB = Kind::kReadsColumns;
  const uint64_t a = operand<kA>(stage.rows + group * kBoxBytes, kBoxBytes);
  const uint64_t b = operand<kB>(stage.columns, kBoxBytes);
  constexpr uint64_t kNextBox = kBoxBytes >> 4;
  begin_products();
#pragma unroll
  for (int k = 0; k < kDepthBytes / 32; ++k) {
    const uint64_t at_a = a + k * kNextStep<kA>, at_b = b + k * kNextStep<kB>;
    if constexpr (kBoxes == kColumns / 64) {
      multiply_256<kElement, kA, kB>(sums, at_a, at_b);
    } else {
      multiply_64<kElement, kA, kB, 0>(sums, at_a, at_b);
      if constexpr (kBoxes > 1) multiply_64<kElement, kA, kB, 32>(sums, at_a, at_b + kNextBox);
      if constexpr (kBoxes > 2) multiply_64<kElement, kA, kB, 64>(sums, at_a, at_b + 2 * kNextBox);
    }
  }
  close_products();
}

// After the products of a stage: both blocks' copiers may fill it again. By one thread of the group.
__device__ inline void let_go(uint64_t* free) {
  for (unsigned rank = 0; rank < kBlocks; ++rank) tensor_core::arrive_at(free, rank);
}

template <typename Kind, int kBoxes>
__device__ void sum_tile(float (&sums)[kBoxes * 32], const KernelArgs& args, Shared& shared, const Tile& tile,
                         Turn& turn, int group) {
  uint64_t* before = nullptr;  // of the stage whose products are under way
  for (int block = 0; block < tile.blocks; ++block, turn.advance()) {
    if constexpr (Kind::kFloat8 && Kind::kForm == Form::kInputGrad) {
      if (2 * block == tile.blocks) {  // the second part of the sum has scales of its own
        tensor_core::wait_for_all_products_but<0>();
        tensor_core::hold(sums);
        scale_sums<Kind>(sums, args, tile, group, Scaling::kBetweenParts);
      }
    }
    tensor_core::wait_for_phase(&shared.full[turn.stage], turn.phase);
    Stage& stage = shared.stages[turn.stage];
    if constexpr (Kind::kOfWeight && !Kind::kFloat8) {
      const int valid = tile.end - tile.begin - block * Kind::kDepth;
      if (valid < Kind::kDepth) clear_rows(stage, valid, group);
    }
    multiply_step<Kind, kBoxes>(sums, stage, group);
    tensor_core::wait_for_all_products_but<1>();
    if (before != nullptr && threadIdx.x % 128 == 0) let_go(before);
    before = &shared.free[turn.stage];
  }
  tensor_core::wait_for_all_products_but<0>();
  if (before != nullptr && threadIdx.x % 128 == 0) let_go(before);
  tensor_core::hold(sums);
}

// A group without rows of its own only takes part in the handing over of stages. One thread does: of several, each
// would have to keep up with every phase of the barriers, and nobody waits for those that let nothing go.
__device__ inline void pass_tile(Shared& shared, const Tile& tile, Turn& turn, int group) {
  if (threadIdx.x % 128 == 0) {
    Turn passed = turn;
    for (int block = 0; block < tile.blocks; ++block, passed.advance()) {
      tensor_core::wait_for_phase(&shared.full[passed.stage], passed.phase);
      let_go(&shared.free[passed.stage]);
    }
  }
  turn.advance(tile.blocks);
  meet_group(group);
}

template <typename Kind, typename T, int kBoxes>
__device__ void multiply_tile(const KernelArgs& args, Shared& shared, const Tile& tile, Turn& turn, int group,
                              Store& store) {
  float sums[kBoxes * 32] = {};
  sum_tile<Kind, kBoxes>(sums, args, shared, tile, turn, group);
  if constexpr (Kind::kFloat8) scale_sums<Kind>(sums, args, tile, group, Scaling::kAtTheEnd);
  if constexpr (Kind::kForm == Form::kTwoResults) {
    store_two_results<!Kind::kFloat8>(sums, tile, store);
  } else if constexpr (Kind::kOfWeight) {
    store_weight_grad<T, kBoxes>(sums, args, tile, store);
  } else {
    store_rows<kBoxes>(sums, tile, store, 0);
  }
  meet_group(group);  // no warp lags by a phase of the barriers
}

template <typename Kind, typename T>
__device__ void multiply_tiles(const KernelArgs& args, Shared& shared, unsigned rank) {
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  Tiles<Kind> tiles(args, rank);
  Store store(args, shared, group);
  Turn turn;
  for (Tile tile; tiles.next(tile);) {
    if (tile.is_idle(group)) {
      pass_tile(shared, tile, turn, group);
    } else if (Kind::kForm == Form::kTwoResults || tile.columns == kColumns) {
      multiply_tile<Kind, T, 4>(args, shared, tile, turn, group, store);
    } else if constexpr (Kind::kForm != Form::kTwoResults) {
      if (tile.columns == 192) multiply_tile<Kind, T, 3>(args, shared, tile, turn, group, store);
      if (tile.columns == 128) multiply_tile<Kind, T, 2>(args, shared, tile, turn, group, store);
      if (tile.columns == 64) multiply_tile<Kind, T, 1>(args, shared, tile, turn, group, store);
    }
  }
  store.finish();
}

#endif

template <typename Kind, typename T>
__global__ void __launch_bounds__(kThreads, 1) grouped_kernel(const __grid_constant__ KernelArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace tensor_core;
  auto& shared = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(dynamic_shared<char>()) + 1023) / 1024 * 1024);
  const unsigned rank = blockIdx.x % kBlocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(&shared.full[i], 1);
      init_barrier(&shared.free[i], 2 * kBlocks);  // both groups of both blocks
    }
    publish_barriers();
  }
  meet_cluster();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) copy_tiles<Kind>(args, shared, rank);
    __syncwarp();
  } else {
    take_registers<232>();
    multiply_tiles<Kind, T>(args, shared, rank);
  }
  meet_cluster();  // no block ends while another may still arrive at its barriers
#endif
}

}  // namespace titanium::kernels::grouped
