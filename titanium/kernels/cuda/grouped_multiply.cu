#include "titanium/kernels/grouped_multiply.h"

#if defined(__HIP__)  // other GPUs have other tensor cores

namespace titanium::kernels {

bool has_grouped_multiply() { return false; }
void grouped_forward(const GroupedForwardArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_swiglu(const GroupedSwigluArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_input_grad(const GroupedInputGradArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_weight_grad(const GroupedWeightGradArgs& /*args*/, GpuStream /*stream*/) {}

}  // namespace titanium::kernels

#else

#include <cuda_bf16.h>

#include "titanium/kernels/cuda/device/cluster.cuh"
#include "titanium/kernels/cuda/device/grouped_tiles.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/cuda/device/tensor_core.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {
namespace {

using namespace grouped;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Form kForm>
__device__ void copy_rows_operand(const KernelArgs& args, Stage& stage, uint64_t* full, const Tile& tile, int part,
                                  int depth) {
  if constexpr (kForm == Form::kWeightGrad) {
    tensor_core::copy_box(stage.rows, args.rows[0], tile.row, tile.begin + depth, 0, full);
    tensor_core::copy_box(stage.rows + kBoxBytes, args.rows[0], tile.row + 64, tile.begin + depth, 0, full);
  } else {
    tensor_core::copy_box(stage.rows, args.rows[part], depth, tile.row, 0, full);
  }
}

// One step of the ring, by one thread.
template <Form kForm>
__device__ void copy_step(const KernelArgs& args, Stage& stage, uint64_t* full, const Tile& tile, int block, int steps,
                          unsigned rank) {
  constexpr Reads kReads = column_reads(kForm);
  constexpr int kWidth = copy_rows(kReads), kCopies = kColumns / kWidth;
  // SwiGLU has as many columns of both matrices, and all of them.
  const int columns = kForm == Form::kSwiglu ? 2 * tile.columns : tile.columns;
  const int copies = columns <= 0 ? 0 : (columns + kWidth - 1) / kWidth;
  tensor_core::arrive_expecting(full, (tile.is_idle() ? 0 : kRowBytes) + copies * copy_bytes(kReads));
  const int part = kForm == Form::kInputGrad && block >= steps ? 1 : 0;
  const int depth = (block - part * steps) * kDepth;
  if (!tile.is_idle()) copy_rows_operand<kForm>(args, stage, full, tile, part, depth);
  const int first = tile.shared ? static_cast<int>(rank) * (kCopies / kBlocks) : 0;
  const int end = tile.shared ? first + kCopies / kBlocks : copies;
  for (int i = first; i < end; ++i) {
    const CUtensorMap& map = args.columns[kForm == Form::kSwiglu ? i : part];
    const int column = tile.column + (kForm == Form::kSwiglu ? 0 : kWidth * i);
    const int x = kReads == Reads::kAlong ? depth : column;
    const int y = kReads == Reads::kAlong ? column : kForm == Form::kWeightGrad ? tile.begin + depth : depth;
    const int z = kForm == Form::kWeightGrad ? 0 : tile.expert;
    unsigned char* to = stage.columns + i * copy_bytes(kReads);
    if (tile.shared) {
      tensor_core::copy_box_to((1 << kBlocks) - 1, to, map, x, y, z, full);
    } else {
      tensor_core::copy_box(to, map, x, y, z, full);
    }
  }
}

template <Form kForm>
__device__ void copy_tiles(const KernelArgs& args, Shared& shared, unsigned rank) {
  Tiles<kForm> tiles(args, rank);
  const int steps = (args.depth + kDepth - 1) / kDepth;
  Turn turn;
  for (Tile tile; tiles.next(tile);) {
    for (int block = 0; block < tile.blocks; ++block, turn.advance()) {
      tensor_core::wait_for_phase(&shared.free[turn.stage], turn.phase ^ 1);
      copy_step<kForm>(args, shared.stages[turn.stage], &shared.full[turn.stage], tile, block, steps, rank);
    }
  }
}

__device__ inline void meet_group(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

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
template <Form kForm, int kBoxes>
__device__ void multiply_step(float (&sums)[kBoxes * 32], const Stage& stage, int group) {
  using namespace tensor_core;
  constexpr Reads kA = row_reads(kForm), kB = column_reads(kForm);
  const uint64_t a = operand<kA>(stage.rows + group * kBoxBytes, kBoxBytes);
  const uint64_t b = operand<kB>(stage.columns, kBoxBytes);
  constexpr uint64_t kNextBox = kBoxBytes >> 4;
  begin_products();
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    const uint64_t at_a = a + k * kNextSixteen<kA>, at_b = b + k * kNextSixteen<kB>;
    if constexpr (kBoxes == kColumns / 64) {
      multiply_256<kA, kB>(sums, at_a, at_b);
    } else {
      multiply_64<kA, kB, 0>(sums, at_a, at_b);
      if constexpr (kBoxes > 1) multiply_64<kA, kB, 32>(sums, at_a, at_b + kNextBox);
      if constexpr (kBoxes > 2) multiply_64<kA, kB, 64>(sums, at_a, at_b + 2 * kNextBox);
    }
  }
  close_products();
}

// After the products of a stage: both blocks' copiers may fill it again. By one thread of the group.
__device__ inline void let_go(uint64_t* free) {
  for (unsigned rank = 0; rank < kBlocks; ++rank) tensor_core::arrive_at(free, rank);
}

template <Form kForm, int kBoxes>
__device__ void sum_tile(float (&sums)[kBoxes * 32], Shared& shared, const Tile& tile, Turn& turn, int group) {
  uint64_t* before = nullptr;  // of the stage whose products are under way
  for (int block = 0; block < tile.blocks; ++block, turn.advance()) {
    tensor_core::wait_for_phase(&shared.full[turn.stage], turn.phase);
    Stage& stage = shared.stages[turn.stage];
    if constexpr (kForm == Form::kWeightGrad) {
      const int valid = tile.end - tile.begin - block * kDepth;
      if (valid < kDepth) clear_rows(stage, valid, group);
    }
    multiply_step<kForm, kBoxes>(sums, stage, group);
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

// The four lanes of a row have two columns of each of four groups of eight; afterwards each has one whole group.
__device__ inline void exchange_in_row(uint32_t (&words)[4]) {
  const unsigned lane = threadIdx.x % 4;
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool high = (lane & step) != 0;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low_word = step == 1 ? 2 * pair : pair, high_word = low_word + step;
      const uint32_t given = high ? words[low_word] : words[high_word];
      const uint32_t got = __shfl_xor_sync(0xFFFFFFFF, given, step);
      (high ? words[low_word] : words[high_word]) = got;
    }
  }
}

__device__ inline uint32_t as_word(__nv_bfloat162 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

// A group's way of storing results, 64 columns at a time. word(g, half) is a thread's pair of bfloat16 of eight columns
// g, in its first row or the one 8 further.
class Store {
 public:
  __device__ Store(const KernelArgs& args, Shared& shared, int group)
      : args_(args), boxes_(shared.results[group]), group_(group), thread_(static_cast<int>(threadIdx.x) % 128) {}

  template <typename Word>
  __device__ void write(const Tile& tile, int result, int column, int matrix, const Word& word) {
    if (tile.row + 64 * (group_ + 1) <= tile.last) {
      write_box(tile, result, column, matrix, word);
    } else {
      write_rows(tile, result, column, matrix, word);
    }
  }
  // The first row of this thread.
  __device__ int row_of(const Tile& tile) const {
    return tile.row + 64 * group_ + thread_ / 32 * 16 + thread_ % 32 / 4;
  }
  __device__ int lane() const { return thread_ % 4; }
  // Before the block ends.
  __device__ void finish() const {
    if (thread_ == 0) tensor_core::wait_until_read_all_but<0>();
  }

 private:
  template <typename Word>
  __device__ void write_box(const Tile& tile, int result, int column, int matrix, const Word& word) {
    Box& box = boxes_[turn_];
    turn_ ^= 1;
    if (thread_ == 0) tensor_core::wait_until_read_all_but<1>();
    meet_group(group_);
    const int lane = thread_ % 32, row = thread_ / 32 * 16 + lane % 16;
#pragma unroll
    for (int g = 0; g < 8; g += 2) {
      const uint32_t words[] = {word(g, 0), word(g, 1), word(g + 1, 0), word(g + 1, 1)};
      tensor_core::store_matrices(&box.rows[row][(g + lane / 16 ^ row % 8) * 16], words);
    }
    tensor_core::fence_shared_stores();
    meet_group(group_);
    if (thread_ == 0) {
      tensor_core::copy_box_out(args_.results[result], column, tile.row + 64 * group_, matrix, &box);
      tensor_core::close_copies_out();
    }
  }

  // Where the rows of the next expert follow.
  template <typename Word>
  __device__ void write_rows(const Tile& tile, int result, int column, int matrix, const Word& word) {
    auto* out = static_cast<bfloat16*>(args_.out[result]) + int64_t{matrix} * args_.height * args_.width;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(tile) + 8 * half, g = part * 4;
        uint32_t words[] = {word(g, half), word(g + 1, half), word(g + 2, half), word(g + 3, half)};
        exchange_in_row(words);
        if (row >= tile.last) continue;
        *reinterpret_cast<uint4*>(out + int64_t{row} * args_.width + column + part * 32 + lane() * 8) =
            uint4{words[0], words[1], words[2], words[3]};
      }
    }
  }

  const KernelArgs& args_;
  Box* boxes_;
  int group_, thread_, turn_ = 0;
};

template <int kBoxes>
__device__ void store_rows(const float (&sums)[kBoxes * 32], const Tile& tile, Store& store, int matrix) {
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    store.write(tile, 0, tile.column + 64 * box, matrix, [&](int g, int half) {
      const int at = (box * 8 + g) * 4 + half * 2;
      return as_word(__floats2bfloat162_rn(sums[at], sums[at + 1]));
    });
  }
}

__device__ inline void store_swiglu(const float (&sums)[128], const Tile& tile, Store& store) {
#pragma unroll
  for (int box = 0; box < 2; ++box) {
    const auto pair = [&](int g, int half, int first) {
      const int at = first + (box * 8 + g) * 4 + half * 2;
      return __floats2bfloat162_rn(sums[at], sums[at + 1]);
    };
    const int column = tile.column + 64 * box;
    store.write(tile, 0, column, 0, [&](int g, int half) { return as_word(pair(g, half, 0)); });
    store.write(tile, 1, column, 0, [&](int g, int half) { return as_word(pair(g, half, 64)); });
    store.write(tile, 2, column, 0, [&](int g, int half) {
      const float2 gate = __bfloat1622float2(pair(g, half, 0)), up = __bfloat1622float2(pair(g, half, 64));
      return as_word(__floats2bfloat162_rn(swiglu_product(gate.x, up.x), swiglu_product(gate.y, up.y)));
    });
  }
}

__device__ inline float2 load_pair(const float* from) { return *reinterpret_cast<const float2*>(from); }
__device__ inline float2 load_pair(const bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}

template <typename T, int kBoxes>
__device__ void store_weight_grad(float (&sums)[kBoxes * 32], const KernelArgs& args, const Tile& tile, Store& store) {
  T* out = static_cast<T*>(args.out[0]) + int64_t{tile.expert} * args.height * args.width;
  if (args.accumulate || sizeof(T) == 4) {
#pragma unroll
    for (int g = 0; g < kBoxes * 8; ++g) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = store.row_of(tile) + 8 * half, at = g * 4 + half * 2;
        if (row >= tile.last) continue;
        T* to = out + int64_t{row} * args.width + tile.column + g * 8 + store.lane() * 2;
        if (args.accumulate) {
          const float2 old = load_pair(to);
          sums[at] += old.x;
          sums[at + 1] += old.y;
        }
        if constexpr (sizeof(T) == 4) *reinterpret_cast<float2*>(to) = make_float2(sums[at], sums[at + 1]);
      }
    }
  }
  if constexpr (sizeof(T) == 2) store_rows<kBoxes>(sums, tile, store, tile.expert);
}

template <Form kForm, typename T, int kBoxes>
__device__ void multiply_tile(const KernelArgs& args, Shared& shared, const Tile& tile, Turn& turn, int group,
                              Store& store) {
  float sums[kBoxes * 32] = {};
  sum_tile<kForm, kBoxes>(sums, shared, tile, turn, group);
  if constexpr (kForm == Form::kSwiglu) {
    store_swiglu(sums, tile, store);
  } else if constexpr (kForm == Form::kWeightGrad) {
    store_weight_grad<T, kBoxes>(sums, args, tile, store);
  } else {
    store_rows<kBoxes>(sums, tile, store, 0);
  }
  meet_group(group);  // no warp lags by a phase of the barriers
}

template <Form kForm, typename T>
__device__ void multiply_tiles(const KernelArgs& args, Shared& shared, unsigned rank) {
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  Tiles<kForm> tiles(args, rank);
  Store store(args, shared, group);
  Turn turn;
  for (Tile tile; tiles.next(tile);) {
    if (tile.is_idle(group)) {
      pass_tile(shared, tile, turn, group);
    } else if (kForm == Form::kSwiglu || tile.columns == kColumns) {
      multiply_tile<kForm, T, 4>(args, shared, tile, turn, group, store);
    } else if constexpr (kForm != Form::kSwiglu) {
      if (tile.columns == 192) multiply_tile<kForm, T, 3>(args, shared, tile, turn, group, store);
      if (tile.columns == 128) multiply_tile<kForm, T, 2>(args, shared, tile, turn, group, store);
      if (tile.columns == 64) multiply_tile<kForm, T, 1>(args, shared, tile, turn, group, store);
    }
  }
  store.finish();
}

#endif

template <Form kForm, typename T>
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
    if (threadIdx.x == 0) copy_tiles<kForm>(args, shared, rank);
    __syncwarp();
  } else {
    take_registers<232>();
    multiply_tiles<kForm, T>(args, shared, rank);
  }
  meet_cluster();  // no block ends while another may still arrive at its barriers
#endif
}

// The driver's function, found through the runtime: the program does not link the driver.
using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
EncodeTensorMap encode_tensor_map() {
  static const EncodeTensorMap kFunction = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<EncodeTensorMap>(found);
  }();
  return kFunction;
}

// Boxes of 64 columns of contiguous matrices.
CUtensorMap boxes_of(const void* data, int64_t matrices, int64_t rows, int64_t columns, Reads reads) {
  CUtensorMap map{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[] = {sizes[0] * 2, sizes[0] * sizes[1] * 2};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(copy_rows(reads)), 1}, steps[] = {1, 1, 1};
  encode_tensor_map()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

KernelArgs common(const ExpertGroups& groups) {
  KernelArgs args{};
  args.ends = groups.ends;
  args.num_experts = static_cast<int>(groups.num_experts);
  args.parts = 1;
  return args;
}

template <Form kForm, typename T = bfloat16>
void run(const KernelArgs& args, GpuStream stream) {
  constexpr ClusterShape kShape{kBlocks, kThreads, kSharedBytes};
  static const int kClusters = resident_clusters(grouped_kernel<kForm, T>, kShape);
  launch_clusters(grouped_kernel<kForm, T>, kShape, kClusters, stream, args);
}

}  // namespace

bool has_grouped_multiply() {
  static const bool kHas = [] {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9 && encode_tensor_map() != nullptr;
  }();
  return kHas;
}

void grouped_forward(const GroupedForwardArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.x, 1, groups.rows, groups.in, Reads::kAlong);
  kernel.columns[0] = boxes_of(args.weight, groups.num_experts, groups.out, groups.in, Reads::kAlong);
  kernel.width = static_cast<int>(groups.out);
  kernel.depth = static_cast<int>(groups.in);
  kernel.results[0] = boxes_of(args.y, 1, groups.rows, groups.out, Reads::kAcross);
  kernel.out[0] = args.y;
  run<Form::kForward>(kernel, stream);
}

void grouped_swiglu(const GroupedSwigluArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.x, 1, groups.rows, groups.in, Reads::kAlong);
  kernel.columns[0] = boxes_of(args.gate_weight, groups.num_experts, groups.out, groups.in, Reads::kAlong);
  kernel.columns[1] = boxes_of(args.up_weight, groups.num_experts, groups.out, groups.in, Reads::kAlong);
  kernel.width = static_cast<int>(groups.out);
  kernel.depth = static_cast<int>(groups.in);
  kernel.out[0] = args.gate;
  kernel.out[1] = args.up;
  kernel.out[2] = args.product;
  for (int i = 0; i < 3; ++i) kernel.results[i] = boxes_of(kernel.out[i], 1, groups.rows, groups.out, Reads::kAcross);
  run<Form::kSwiglu>(kernel, stream);
}

void grouped_input_grad(const GroupedInputGradArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.dy, 1, groups.rows, groups.out, Reads::kAlong);
  kernel.columns[0] = boxes_of(args.weight, groups.num_experts, groups.out, groups.in, Reads::kAcross);
  if (args.dy2 != nullptr) {
    kernel.parts = 2;
    kernel.rows[1] = boxes_of(args.dy2, 1, groups.rows, groups.out, Reads::kAlong);
    kernel.columns[1] = boxes_of(args.weight2, groups.num_experts, groups.out, groups.in, Reads::kAcross);
  }
  kernel.width = static_cast<int>(groups.in);
  kernel.depth = static_cast<int>(groups.out);
  kernel.results[0] = boxes_of(args.dx, 1, groups.rows, groups.in, Reads::kAcross);
  kernel.out[0] = args.dx;
  run<Form::kInputGrad>(kernel, stream);
}

void grouped_weight_grad(const GroupedWeightGradArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.dy, 1, groups.rows, groups.out, Reads::kAcross);
  kernel.columns[0] = boxes_of(args.x, 1, groups.rows, groups.in, Reads::kAcross);
  kernel.height = static_cast<int>(groups.out);
  kernel.width = static_cast<int>(groups.in);
  kernel.results[0] = boxes_of(args.sums, groups.num_experts, groups.out, groups.in, Reads::kAcross);
  kernel.out[0] = args.sums;
  kernel.accumulate = args.accumulate;
  with_type(args.sum_type, [&](auto element) { run<Form::kWeightGrad, decltype(element)>(kernel, stream); });
}

}  // namespace titanium::kernels

#endif
