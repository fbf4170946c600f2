#include "titanium/kernels/cuda/rms_norm.cuh"

namespace titanium::kernels {
namespace {

using rms::kHeld;

// Blocks per multiprocessor. Each writes a part of dweight, so few large blocks are better than many small ones.
constexpr int backward_blocks(int threads) { return threads <= 128 ? 6 : threads <= 256 ? 3 : 1; }
// Of whatever kernel is chosen for rows of `dim`: blocks of 128 threads hold no more than 2048 elements.
constexpr int most_blocks(int64_t dim) { return backward_blocks(dim <= 2048 ? 128 : 256); }
static_assert(rms::kPlainBlocks <= most_blocks(4096));

// What a thread holds of one row.
template <typename T, int kSize>
struct RowWords {
  Raw<T, kSize> dy[kHeld] = {}, x[kHeld] = {};
  float rstd = 0;
};

template <typename T, int kGroup>
__device__ RowWords<T, kVectorSize<T>> load_row(const RmsNormBackwardArgs& args, int64_t row) {
  constexpr int kSize = kVectorSize<T>;
  RowWords<T, kSize> words;
  if (row >= args.rows) return words;
  words.rstd = args.rstd[row];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t column = int64_t(threadIdx.x % kGroup + i * kGroup) * kSize;
    if (column >= args.dim) continue;
    words.dy[i] = load<T, kSize>(static_cast<const T*>(args.dy) + row * args.dim + column);
    words.x[i] = load<T, kSize>(static_cast<const T*>(args.x) + row * args.dim + column);
  }
  return words;
}

// dx of one row out of its words; adds the row's share to dweight.
template <typename T, int kGroup>
__device__ void finish_row(const RmsNormBackwardArgs& args, int64_t row, const RowWords<T, kVectorSize<T>>& words,
                           float (&dweight)[kHeld][kVectorSize<T>], Magnitude<T>& magnitude,
                           BlockSumRoom<float>& room) {
  constexpr int kSize = kVectorSize<T>;
  Raw<T, kSize> around[kHeld] = {};
  bool here[kHeld];
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t column = int64_t(threadIdx.x % kGroup + i * kGroup) * kSize;
    here[i] = row < args.rows && column < args.dim;
    if (here[i] && args.residual_grad != nullptr)
      around[i] = load<T, kSize>(static_cast<const T*>(args.residual_grad) + row * args.dim + column);
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (!here[i]) continue;
    float dy[kSize], x[kSize], weight[kSize];
    load_floats<kSize>(args.weight, args.weight_type, int64_t(threadIdx.x % kGroup + i * kGroup) * kSize, weight);
    to_float(words.dy[i], dy);
    to_float(words.x[i], x);
    for (int j = 0; j < kSize; ++j) {
      const float share = dy[j] * (x[j] * words.rstd);
      dweight[i][j] += share;
      dot += share * weight[j];
    }
  }
  const float mean = group_sum<kGroup, rms::block_threads(kGroup)>(dot, room) / static_cast<float>(args.dim);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (!here[i]) continue;
    const int64_t column = int64_t(threadIdx.x % kGroup + i * kGroup) * kSize;
    float dy[kSize], x[kSize], weight[kSize], more[kSize];
    load_floats<kSize>(args.weight, args.weight_type, column, weight);
    to_float(words.dy[i], dy);
    to_float(words.x[i], x);
    to_float(around[i], more);
    for (int j = 0; j < kSize; ++j) dy[j] = (dy[j] * weight[j] - x[j] * words.rstd * mean) * words.rstd + more[j];
    const auto dx = from_float<T, kSize>(dy);
    store<T, kSize>(static_cast<T*>(args.dx) + row * args.dim + column, dx);
    if (args.amax != nullptr) magnitude.add(dx);
  }
}

// Writes the block's part of dweight to row blockIdx.x of the scratch.
template <typename T, int kGroup>
__device__ void write_part(const RmsNormBackwardArgs& args, const float (&dweight)[kHeld][kVectorSize<T>]) {
  constexpr int kSize = kVectorSize<T>, kThreads = rms::block_threads(kGroup);
  float* part = args.scratch + int64_t{blockIdx.x} * args.dim;
  const int member = threadIdx.x % kGroup;
  if constexpr (kGroup == kThreads) {
    for (int i = 0; i < kHeld; ++i) {
      const int64_t column = int64_t(member + i * kGroup) * kSize;
      if (column < args.dim) store_floats<float, kSize>(part + column, dweight[i]);
    }
  } else {
    constexpr int kColumns = kGroup * kHeld * kSize;
    __shared__ float of_group[kThreads / kGroup][kColumns];
    for (int i = 0; i < kHeld; ++i) {
      for (int j = 0; j < kSize; ++j) of_group[threadIdx.x / kGroup][(member + i * kGroup) * kSize + j] = dweight[i][j];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < args.dim; column += kThreads) {
      float sum = 0;
      for (int group = 0; group < kThreads / kGroup; ++group) sum += of_group[group][column];
      part[column] = sum;
    }
  }
}

// The next row's words are under way while a row is computed.
template <typename T, int kGroup>
__global__ void __launch_bounds__(rms::block_threads(kGroup), backward_blocks(rms::block_threads(kGroup)))
    backward_kernel(RmsNormBackwardArgs args) {
  constexpr int kRows = rms::block_threads(kGroup) / kGroup;
  __shared__ BlockSumRoom<float> rooms[2];
  float dweight[kHeld][kVectorSize<T>] = {};
  Magnitude<T> magnitude;
  const int64_t step = int64_t{gridDim.x} * kRows;
  int64_t first = int64_t{blockIdx.x} * kRows;
  const int group = threadIdx.x / kGroup;
  auto words = load_row<T, kGroup>(args, first + group);
  for (int turn = 0; first < args.rows; first += step, turn ^= 1) {
    const auto ahead = load_row<T, kGroup>(args, first + step + group);
    finish_row<T, kGroup>(args, first + group, words, dweight, magnitude, rooms[turn]);
    words = ahead;
  }
  write_part<T, kGroup>(args, dweight);
  raise_to_block<rms::block_threads(kGroup)>(args.amax, magnitude);
}

// Any dim, any alignment. A thread owns its columns of the block's part, so it can add to them in memory.
template <typename T>
__global__ void __launch_bounds__(rms::kPlainThreads, rms::kPlainBlocks)
    plain_backward_kernel(RmsNormBackwardArgs args) {
  __shared__ BlockSumRoom<float> rooms[2];
  float* part = args.scratch + int64_t{blockIdx.x} * args.dim;
  for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) part[column] = 0;
  Magnitude<T> magnitude;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t begin = row * args.dim;
    const T* dy = static_cast<const T*>(args.dy) + begin;
    const T* x = static_cast<const T*>(args.x) + begin;
    const float rstd = args.rstd[row];
    float dot = 0, weight[1];
    for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) {
      const float share = static_cast<float>(dy[column]) * (static_cast<float>(x[column]) * rstd);
      load_floats<1>(args.weight, args.weight_type, column, weight);
      part[column] += share;
      dot += share * weight[0];
    }
    const float mean = block_sum<rms::kPlainThreads>(dot, rooms[turn]) / static_cast<float>(args.dim);
    turn ^= 1;
    for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) {
      load_floats<1>(args.weight, args.weight_type, column, weight);
      const float around =
          args.residual_grad ? static_cast<float>(static_cast<const T*>(args.residual_grad)[begin + column]) : 0.0F;
      const float value = static_cast<float>(dy[column]) * weight[0] - static_cast<float>(x[column]) * rstd * mean;
      const float values[1] = {value * rstd + around};
      const auto dx = from_float<T, 1>(values);
      store<T, 1>(static_cast<T*>(args.dx) + begin + column, dx);
      magnitude.add(dx);
    }
  }
  raise_to_block<rms::kPlainThreads>(args.amax, magnitude);
}

constexpr int kSumLanes = 32, kSumRows = 16;

struct SumPartsArgs {
  const float* parts;  // [count, dim]
  int64_t count;
  int64_t dim;
  void* dweight;
  ElementType dweight_type;
  bool accumulate;
};

// Adds the blocks' parts of the gradient of the weight, in order: a column for each lane, a share of the parts for each
// warp.
__global__ void __launch_bounds__(kSumLanes* kSumRows) sum_parts_kernel(SumPartsArgs args) {
  __shared__ float of_row[kSumRows][kSumLanes];
  const int lane = threadIdx.x % kSumLanes, line = threadIdx.x / kSumLanes;
  const int64_t column = int64_t{blockIdx.x} * kSumLanes + lane;
  float sum = 0;
  if (column < args.dim) {
#pragma unroll 8
    for (int64_t part = line; part < args.count; part += kSumRows) sum += args.parts[part * args.dim + column];
  }
  of_row[line][lane] = sum;
  __syncthreads();
  if (line != 0 || column >= args.dim) return;
  for (int other = 1; other < kSumRows; ++other) sum += of_row[other][lane];
  if (args.dweight_type == ElementType::kBFloat16) {
    bfloat16* out = static_cast<bfloat16*>(args.dweight) + column;
    *out = static_cast<bfloat16>(args.accumulate ? static_cast<float>(*out) + sum : sum);
  } else {
    float* out = static_cast<float*>(args.dweight) + column;
    *out = args.accumulate ? *out + sum : sum;
  }
}

}  // namespace

void rms_norm_backward(const RmsNormBackwardArgs& args, CUstream_st* stream) {
  int64_t blocks = 0;
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    bool vector =
        args.dim % kVectorSize<T> == 0 && vector_aligned(args.weight, 0, 1) && vector_aligned(args.scratch, 0, 1);
    for (const void* pointer : {args.dy, args.x, args.residual_grad, static_cast<const void*>(args.dx)})
      vector = vector && vector_aligned(pointer, args.dim, sizeof(T));
    const bool done = vector && rms::with_group<T>(args.dim, [&](auto group) {
                        constexpr int kGroup = decltype(group)::kValue, kThreads = rms::block_threads(kGroup);
                        blocks = resident_blocks(ceil_div(args.rows, kThreads / kGroup), backward_blocks(kThreads));
                        launch(backward_kernel<T, kGroup>, blocks, kThreads, 0, stream, args);
                      });
    if (done) return;
    blocks = resident_blocks(args.rows, rms::kPlainBlocks);
    launch(plain_backward_kernel<T>, blocks, rms::kPlainThreads, 0, stream, args);
  });
  launch(sum_parts_kernel, ceil_div(args.dim, kSumLanes), kSumLanes * kSumRows, 0, stream,
         SumPartsArgs{args.scratch, blocks, args.dim, args.dweight, args.dweight_type, args.accumulate_dweight});
}

int64_t rms_norm_backward_scratch_bytes(int64_t rows, int64_t dim) {
  return resident_blocks(rows, most_blocks(dim)) * dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace titanium::kernels
