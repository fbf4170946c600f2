#include "titanium/kernels/cuda/device/float8_tile.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/expert_float8.h"

namespace titanium::kernels {
namespace {

using tile::kAcross;
using tile::kDepth;
using tile::kSize;
using tile::kThreads;
using tile::kWidth;
using tile::kWord;

constexpr int kBlocks = 3;  // per multiprocessor
constexpr int kBatch = 4;   // rows that a thread has under way
constexpr int kDown = kThreads / kAcross;
constexpr auto kE4m3 = Float8Format::kE4m3;
static_assert(kFloat8GroupMultiple == kWord);

__device__ int64_t filled_up(int64_t rows) { return (rows + kWord - 1) / kWord * kWord; }

struct Group {
  int64_t begin;  // its first row
  int64_t rows;
  int64_t line;  // where its lines begin beside the strides
};

// All threads must call it.
__device__ Group find_group(const QuantizeGroupsArgs& args, int64_t group) {
  if (args.ends == nullptr) return {group * args.rows_of_group, args.rows_of_group, 0};
  __shared__ int64_t line;
  if (threadIdx.x < 32) {
    int before = 0;
    for (int64_t other = threadIdx.x; other < group; other += 32) {
      before += static_cast<int>(filled_up(args.ends[other] - (other > 0 ? args.ends[other - 1] : 0)));
    }
    before = __reduce_add_sync(kWholeWarp, before);
    if (threadIdx.x == 0) line = before;
  }
  __syncthreads();
  const int64_t begin = group > 0 ? args.ends[group - 1] : 0;
  return {begin, args.ends[group] - begin, line};
}

// Fills `scale` with those of this thread's columns, and writes their reciprocals. All threads must call it.
template <typename T>
__device__ void find_scales(const T* x, const Group& group, int64_t dim, int64_t first_column, float* reciprocals,
                            float (&scale)[kWidth]) {
  __shared__ unsigned bits_of_column[kSize];
  __shared__ float of_column[kSize];
  const int across = threadIdx.x % kAcross;
  const int64_t column = first_column + across * kWidth;
  if (threadIdx.x < kSize) bits_of_column[threadIdx.x] = 0;
  __syncthreads();
  ColumnMagnitudes<T, kWidth> magnitudes;
  for (int64_t first = threadIdx.x / kAcross; column < dim && first < group.rows; first += kDown * kBatch) {
    Raw<T, kWidth> raw[kBatch] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t row = first + i * kDown;
      if (row < group.rows) raw[i] = load_again<T, kWidth>(x + (group.begin + row) * dim + column);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) magnitudes.add(raw[i]);
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) atomicMax(&bits_of_column[across * kWidth + j], magnitudes.bits(j));
  __syncthreads();
  if (threadIdx.x < kSize && first_column + threadIdx.x < dim) {
    const float found = float8_scale<kE4m3>(__uint_as_float(bits_of_column[threadIdx.x]), /*power_of_two=*/true);
    of_column[threadIdx.x] = found;
    reciprocals[first_column + threadIdx.x] = 1.0F / found;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kWidth; ++j) scale[j] = of_column[across * kWidth + j];
}

// Quantises kSize rows from `first_row` of the group on.
template <typename T>
__device__ void put_rows(const T* x, const Group& group, int64_t dim, int64_t first_row, int64_t first_column,
                         const float (&scale)[kWidth], tile::Transposed& transposed) {
  const int across = threadIdx.x % kAcross;
  const int64_t column = first_column + across * kWidth;
#pragma unroll
  for (int pass = 0; pass < tile::kPasses; ++pass) {
    const int word = threadIdx.x / kAcross + pass * kDown;
    Raw<T, kWidth> raw[kDepth] = {};
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      const int64_t row = first_row + word * kDepth + depth;
      if (column < dim && row < group.rows) raw[depth] = load<T, kWidth>(x + (group.begin + row) * dim + column);
    }
    uint2 rows[kDepth];
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      float v[kWidth];
      to_float(raw[depth], v);
      const bool inside = first_row + word * kDepth + depth < group.rows;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v[j] = inside ? v[j] * scale[j] : 0.0F;
      rows[depth] = {to_float8<kE4m3>(v[0], v[1], v[2], v[3]), to_float8<kE4m3>(v[4], v[5], v[6], v[7])};
    }
    transposed.put(across, word, rows);
  }
}

// A block has kSize columns of a group.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) groups_kernel(QuantizeGroupsArgs args) {
  __shared__ tile::Transposed transposed;
  const int64_t slices = (args.dim + kSize - 1) / kSize;
  const int64_t index = quotient(blockIdx.x, slices), first_column = (blockIdx.x - index * slices) * kSize;
  const Group group = find_group(args, index);
  const int64_t filled = filled_up(group.rows);
  if (args.ends != nullptr && first_column == 0 && threadIdx.x == 0) {
    args.line_ends[index] = static_cast<int32_t>(group.line + filled);
  }
  const T* x = static_cast<const T*>(args.x);
  float scale[kWidth];
  find_scales(x, group, args.dim, first_column, args.reciprocals + index * args.dim, scale);
  constexpr int kWords = kSize / kWord;
  const int word = threadIdx.x % kWords;
  for (int64_t first_row = 0; first_row < filled; first_row += kSize) {
    put_rows(x, group, args.dim, first_row, first_column, scale, transposed);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSize * kWords / kThreads; ++i) {
      const int column = threadIdx.x / kWords + i * (kThreads / kWords);
      const int64_t row = first_row + word * kWord;
      if (first_column + column >= args.dim || row >= filled) continue;
      uint8_t* line = args.lines + index * args.group_stride + (first_column + column) * args.line_stride + group.line;
      *reinterpret_cast<uint4*>(line + row) = transposed.take(column, word);
    }
    __syncthreads();
  }
}

}  // namespace

void quantize_groups(const QuantizeGroupsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    launch(groups_kernel<decltype(element)>, args.groups * ceil_div(args.dim, kSize), kThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
