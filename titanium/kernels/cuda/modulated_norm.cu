#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/sum_parts.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/modulated_norm.h"

namespace titanium::kernels {
namespace {

// A row is treated by a block, a 128-bit word of it by each thread.
template <int kBlockThreads>
struct Threads {
  static constexpr int kCount = kBlockThreads;
  // Per multiprocessor, for the backward: each block writes parts of two sums, so few are better than many.
  static constexpr int kBackwardBlocks = kBlockThreads <= 256 ? 4 : kBlockThreads <= 512 ? 2 : 1;
};

// Calls `call` with the smallest block that holds a row of `words`.
template <typename Call>
void with_threads(int64_t words, const Call& call) {
  if (words <= 64) return call(Threads<64>{});
  if (words <= 128) return call(Threads<128>{});
  if (words <= 256) return call(Threads<256>{});
  if (words <= 384) return call(Threads<384>{});
  if (words <= 512) return call(Threads<512>{});
  call(Threads<1024>{});
}

template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads) forward_kernel(ModulatedNormForwardArgs args) {
  constexpr int kSize = kVectorSize<T>;
  __shared__ BlockSumRoom<float> rooms[2];
  const int64_t row = blockIdx.x, sample = quotient(row, args.rows_of_sample);
  const int64_t column = int64_t{threadIdx.x} * kSize, at = row * args.dim + column;
  const bool here = column < args.dim;
  Raw<T, kSize> raw = {}, raw_scale = {}, raw_shift = {};
  if (here) {
    raw = load<T, kSize>(static_cast<const T*>(args.x) + at);
    raw_scale = load_again<T, kSize>(static_cast<const T*>(args.scale) + sample * args.dim + column);
    raw_shift = load_again<T, kSize>(static_cast<const T*>(args.shift) + sample * args.dim + column);
  }
  float x[kSize], sum = 0, squares = 0;
  to_float(raw, x);
#pragma unroll
  for (int j = 0; j < kSize; ++j) sum += x[j];
  const float mean = block_sum<kThreads>(sum, rooms[0]) / static_cast<float>(args.dim);
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    x[j] -= mean;
    if (here) squares += x[j] * x[j];
  }
  const float rstd = rsqrtf(block_sum<kThreads>(squares, rooms[1]) / static_cast<float>(args.dim) + args.eps);
  if (threadIdx.x == 0) {
    args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
  if (!here) return;
  float scale[kSize], shift[kSize];
  to_float(raw_scale, scale);
  to_float(raw_shift, shift);
#pragma unroll
  for (int j = 0; j < kSize; ++j) x[j] = (1.0F + scale[j]) * (x[j] * rstd) + shift[j];
  store_floats<T, kSize>(static_cast<T*>(args.y) + at, x);
}

// Sums of two numbers over a block. A loop uses two rooms in turn, as block_sum does.
struct PairRoom {
  float2 of_warp[32];
};
template <int kThreads>
__device__ float2 block_sums(float first, float second, PairRoom& room) {
  first = lanes_sum<32>(first);
  second = lanes_sum<32>(second);
  const int lane = threadIdx.x % 32;
  if (lane == 0) room.of_warp[threadIdx.x / 32] = {first, second};
  __syncthreads();
  const float2 mine = lane < kThreads / 32 ? room.of_warp[lane] : float2{0, 0};
  return {lanes_sum<32>(mine.x), lanes_sum<32>(mine.y)};
}

// The words of a row that a thread reads.
template <typename T>
struct RowWords {
  Raw<T, kVectorSize<T>> dy = {}, x = {}, around = {};
  float mean = 0, rstd = 0;

  __device__ void ask(const ModulatedNormBackwardArgs& args, int64_t row, int64_t column) {
    constexpr int kSize = kVectorSize<T>;
    mean = args.mean[row];
    rstd = args.rstd[row];
    if (column >= args.dim) return;
    const int64_t at = row * args.dim + column;
    dy = load<T, kSize>(static_cast<const T*>(args.dy) + at);
    x = load<T, kSize>(static_cast<const T*>(args.x) + at);
    if (args.residual_grad != nullptr) around = load<T, kSize>(static_cast<const T*>(args.residual_grad) + at);
  }
};

// Blocks that share the rows of a sample.
int64_t parts_of(const ModulatedNormBackwardArgs& args, int blocks_each) {
  const int64_t samples = args.rows / args.rows_of_sample;
  const int64_t parts = int64_t{multiprocessors()} * blocks_each / samples;
  return parts < 1 ? 1 : parts < args.rows_of_sample ? parts : args.rows_of_sample;
}

struct BackwardTask {
  ModulatedNormBackwardArgs args;
  int64_t parts;
};

template <typename T, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) backward_kernel(BackwardTask task) {
  constexpr int kSize = kVectorSize<T>;
  __shared__ PairRoom rooms[2];
  let_second_kernel_come();
  const ModulatedNormBackwardArgs& args = task.args;
  const int64_t sample = quotient(blockIdx.x, task.parts), part = blockIdx.x - sample * task.parts;
  const int64_t column = int64_t{threadIdx.x} * kSize, begin = sample * args.rows_of_sample,
                end = begin + args.rows_of_sample;
  const bool here = column < args.dim;
  float scale[kSize] = {}, dshift[kSize] = {}, dscale[kSize] = {};
  if (here) to_float(load_again<T, kSize>(static_cast<const T*>(args.scale) + sample * args.dim + column), scale);
  RowWords<T> next;
  next.ask(args, begin + part, column);
  int turn = 0;
  for (int64_t row = begin + part; row < end; row += task.parts, turn ^= 1) {
    const RowWords<T> now = next;
    if (row + task.parts < end) next.ask(args, row + task.parts, column);
    float dy[kSize], x[kSize], sum = 0, dot = 0;
    to_float(now.dy, dy);
    to_float(now.x, x);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      x[j] = (x[j] - now.mean) * now.rstd;
      dshift[j] += dy[j];
      dscale[j] += dy[j] * x[j];
      dy[j] *= 1.0F + scale[j];
      if (here) sum += dy[j], dot += dy[j] * x[j];
    }
    const float2 sums = block_sums<kThreads>(sum, dot, rooms[turn]);
    if (!here) continue;
    const float mean_dy = sums.x / static_cast<float>(args.dim), mean_dot = sums.y / static_cast<float>(args.dim);
    float around[kSize];
    to_float(now.around, around);
#pragma unroll
    for (int j = 0; j < kSize; ++j) dy[j] = (dy[j] - mean_dy - x[j] * mean_dot) * now.rstd + around[j];
    store_floats<T, kSize>(static_cast<T*>(args.dx) + row * args.dim + column, dy);
  }
  if (!here) return;
  const int64_t all = quotient(args.rows, args.rows_of_sample) * args.dim;
  float* sums = args.scratch + part * all + sample * args.dim + column;
  store_floats<float, kSize>(sums, dshift);
  store_floats<float, kSize>(sums + task.parts * all, dscale);
}

}  // namespace

void modulated_norm_forward(const ModulatedNormForwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    with_threads(args.dim / kVectorSize<T>, [&](auto threads) {
      launch(forward_kernel<T, threads.kCount>, args.rows, threads.kCount, 0, stream, args);
    });
  });
}

void modulated_norm_backward(const ModulatedNormBackwardArgs& args, GpuStream stream) {
  const int64_t samples = args.rows / args.rows_of_sample, all = samples * args.dim;
  int64_t parts = 0;
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    with_threads(args.dim / kVectorSize<T>, [&](auto threads) {
      parts = parts_of(args, threads.kBackwardBlocks);
      launch(backward_kernel<T, threads.kCount, threads.kBackwardBlocks>, samples * parts, threads.kCount, 0, stream,
             BackwardTask{args, parts});
    });
  });
  launch_sum_of_parts<2>({{{args.scratch, parts, args.dshift, /*accumulate=*/false},
                           {args.scratch + parts * all, parts, args.dscale, /*accumulate=*/false}},
                          args.type,
                          all},
                         stream);
}

int64_t modulated_norm_backward_scratch_bytes(const ModulatedNormBackwardArgs& args) {
  int64_t parts = 0;
  with_threads(args.dim * element_size(args.type) / 16,
               [&](auto threads) { parts = parts_of(args, threads.kBackwardBlocks); });
  return 2 * parts * (args.rows / args.rows_of_sample) * args.dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace titanium::kernels
