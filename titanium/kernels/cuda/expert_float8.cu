#include "titanium/kernels/cuda/device/cluster.cuh"
#include "titanium/kernels/cuda/device/float8_lines.cuh"
#include "titanium/kernels/expert_float8.h"

namespace titanium::kernels {
namespace {

using lines::kAcross;
using lines::kDepth;
using lines::kDown;
using lines::kE4m3;
using lines::kSize;
using lines::kThreads;
using lines::kWidth;

__global__ void line_ends_kernel(Float8LineEndsArgs args) {
  int before = 0;
  for (int64_t first = 0; first < args.groups; first += 32) {
    const int64_t group = first + threadIdx.x;
    int end = 0;  // of the lines of these 32 groups
    if (group < args.groups) end = args.ends[group] - (group > 0 ? args.ends[group - 1] : 0);
    end = (end + kSize - 1) / kSize * kSize;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(kWholeWarp, end, offset);
      if (static_cast<int>(threadIdx.x) >= offset) end += below;
    }
    if (group < args.groups) args.line_ends[group] = before + end;
    before += __shfl_sync(kWholeWarp, end, 31);
  }
}

// --- Rows of experts ---

template <typename T, bool kGathered>
struct Rows {
  using Element = T;
  using Words = Raw<T, kWidth>;
  static constexpr int kOutputs = 1;
  static constexpr int kBlocks = 4;
  static constexpr bool kSlicesFirst = kGathered;
  const T* x;
  const int32_t* choice_of_row;
  int64_t top_k;
  int64_t dim;
  __device__ Words load(int64_t row, int64_t column) const {
    if constexpr (kGathered) row = quotient(choice_of_row[row], top_k);
    return load_again<T, kWidth>(x + row * dim + column);
  }
  __device__ void values(const Words& words, float (&out)[1][kWidth]) const { to_float(words, out[0]); }
};

template <typename Source>
void quantize(const lines::LinesArgs<Source>& args, GpuStream stream) {
  lines::launch_maxima(args, stream);
  lines::launch_lines(args, stream);
}

// --- Matrices: what a cluster holds of a column is read once ---

template <typename T>
constexpr int kTiles = sizeof(T) == 2 ? 2 : 1;  // of kSize rows in the registers of a block
template <typename T>
constexpr int64_t kRowsOfBlock = kTiles<T> * kSize;
constexpr int kMostBlocks = 8;  // of a cluster
constexpr int kBlocks = 2;      // per multiprocessor

// The largest magnitudes of columns over the blocks of a cluster. All threads of all blocks must call it.
__device__ inline unsigned max_over_cluster(const unsigned (&bits_of_column)[kSize], unsigned blocks) {
  unsigned bits = 0;
  meet_cluster();
  for (unsigned rank = 0; rank < blocks; ++rank) bits = max(bits, look(rank, &bits_of_column[threadIdx.x % kSize]));
  meet_cluster();
  return bits;
}

template <typename T>
__device__ void find_matrix_scales(const QuantizeMatricesArgs& args, const Raw<T, kWidth> (&raw)[kTiles<T> * 8],
                                   unsigned rank, unsigned blocks, int64_t matrix, int64_t first_column,
                                   float (&of_column)[kSize]) {
  __shared__ unsigned bits_of_column[kSize];
  if (threadIdx.x < kSize) bits_of_column[threadIdx.x] = 0;
  __syncthreads();
  ColumnMagnitudes<T, kWidth> found;
#pragma unroll
  for (int i = 0; i < kTiles<T> * 8; ++i) found.add(raw[i]);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const unsigned bits = max(found.bits(j), __shfl_xor_sync(kWholeWarp, found.bits(j), kAcross));
    if (threadIdx.x % 32 < kAcross) atomicMax(&bits_of_column[threadIdx.x % kAcross * kWidth + j], bits);
  }
  const unsigned bits = max_over_cluster(bits_of_column, blocks);
  if (threadIdx.x < kSize) {
    const float scale = float8_scale<kE4m3>(__uint_as_float(bits), /*power_of_two=*/true);
    of_column[threadIdx.x] = scale;
    const int64_t column = first_column + threadIdx.x;
    if (rank == 0 && column < args.dim) args.reciprocals[matrix * args.dim + column] = 1.0F / scale;
  }
  __syncthreads();
}

// A cluster has kSize columns of a matrix, each of its blocks kRowsOfBlock rows of them.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) matrices_kernel(QuantizeMatricesArgs args) {
  __shared__ tile::Transposed transposed;
  __shared__ float scales[kSize];
  const auto blocks = static_cast<unsigned>((args.rows + kRowsOfBlock<T> - 1) / kRowsOfBlock<T>);
  const unsigned rank = blockIdx.x % blocks;
  const int64_t slices = (args.dim + kSize - 1) / kSize, index = blockIdx.x / blocks;
  const int64_t matrix = quotient(index, slices), first_column = (index - matrix * slices) * kSize;
  const int across = threadIdx.x % kAcross;
  const int64_t column = first_column + across * kWidth, first_row = rank * kRowsOfBlock<T>;
  const T* x = static_cast<const T*>(args.x) + matrix * args.rows * args.dim + column;
  constexpr int kHeld = kTiles<T> * 8;  // rows of a thread: kDepth of every kDown * kDepth
  Raw<T, kWidth> raw[kHeld] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t row = first_row + (threadIdx.x / kAcross + i / kDepth * kDown) * kDepth + i % kDepth;
    if (row < args.rows && column < args.dim) raw[i] = load<T, kWidth>(x + row * args.dim);
  }
  find_matrix_scales(args, raw, rank, blocks, matrix, first_column, scales);
#pragma unroll
  for (int part = 0; part < kTiles<T>; ++part) {
    lines::Spot spot = {};
    spot.column = first_column;
    spot.filled = args.rows - first_row - part * kSize;
    spot.line = matrix * args.dim * args.rows + first_row + part * kSize;
#pragma unroll
    for (int pass = 0; pass < tile::kPasses; ++pass) {
      uint2 rows[kDepth];
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        float values[kWidth];
        to_float(raw[(part * tile::kPasses + pass) * kDepth + depth], values);
        rows[depth] = lines::scaled_word(values, scales + across * kWidth, true);
      }
      transposed.put(across, static_cast<int>(threadIdx.x) / kAcross + pass * kDown, rows);
    }
    __syncthreads();
    lines::write_lines(transposed, args.lines, spot, args.dim, args.rows);
    __syncthreads();
  }
}

// Whether a cluster can hold columns of so many rows.
template <typename T>
bool has_clusters(int64_t rows) {
  static const bool kHas = resident_clusters(matrices_kernel<T>, {kMostBlocks, kThreads, 0}) > 0;
  return kHas && rows <= kMostBlocks * kRowsOfBlock<T>;
}

}  // namespace

void float8_line_ends(const Float8LineEndsArgs& args, GpuStream stream) {
  launch(line_ends_kernel, 1, 32, 0, stream, args);
}

void quantize_groups(const QuantizeGroupsArgs& args, GpuStream stream) {
  const lines::Groups groups =
      lines::groups_of_experts(args.ends, args.line_ends, args.groups, args.rows, args.dim, args.length);
  const lines::Output out{args.lines, args.amax, args.reciprocals};
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    const T* x = static_cast<const T*>(args.x);
    if (args.choice_of_row != nullptr) {
      quantize<Rows<T, true>>({{x, args.choice_of_row, args.top_k, args.dim}, groups, {out}}, stream);
    } else {
      quantize<Rows<T, false>>({{x, nullptr, 1, args.dim}, groups, {out}}, stream);
    }
  });
}

void quantize_matrices(const QuantizeMatricesArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    if (has_clusters<T>(args.rows)) {
      const int64_t clusters = args.matrices * ceil_div(args.dim, kSize);
      const auto blocks = static_cast<int>(ceil_div(args.rows, kRowsOfBlock<T>));
      return launch_clusters(matrices_kernel<T>, {blocks, kThreads, 0}, clusters, stream, args);
    }
    quantize<Rows<T, false>>({{static_cast<const T*>(args.x), nullptr, 1, args.dim},
                              lines::groups_of_matrices(args.matrices, args.rows, args.dim),
                              {{args.lines, args.amax, args.reciprocals}}},
                             stream);
  });
}

}  // namespace titanium::kernels
