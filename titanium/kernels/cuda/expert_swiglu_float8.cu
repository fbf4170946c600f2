#include "titanium/kernels/cuda/device/float8_lines.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/expert_swiglu_float8.h"

namespace titanium::kernels {
namespace {

using lines::kE4m3;
using lines::kWidth;
using Word = Raw<bfloat16, kWidth>;

constexpr int kFewThreads = 256, kManyThreads = 1024;  // of a block; each has kWidth columns of a row
constexpr int kFewBlocks = 4;                          // per multiprocessor
static_assert(kManyThreads * kWidth == kMostSwigluFloat8Columns);

constexpr int blocks_for(int most_threads) { return most_threads == kFewThreads ? kFewBlocks : 1; }

__device__ inline Word rounded(const float (&values)[kWidth]) { return from_float<bfloat16, kWidth>(values); }

__device__ inline void store_scaled(const Float8RowsOutput& out, int64_t index, const Word& word, float scale) {
  float v[kWidth];
  to_float(word, v);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) v[j] *= scale;
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(out.values) + index) = {to_float8<kE4m3>(v[0], v[1], v[2], v[3]),
                                                                          to_float8<kE4m3>(v[4], v[5], v[6], v[7])};
}

// Maxima and a sum of the warps of a block. Used as those of block_sum.
struct Room {
  unsigned first[32], second[32];
  float sum[32];
};

// A block has a row.
template <int kMost>
__global__ void __launch_bounds__(kMost) forward_kernel(SwigluFloat8ForwardArgs args) {
  __shared__ unsigned of_warp[32];
  const int64_t column = int64_t{threadIdx.x} * kWidth, index = blockIdx.x * args.dim + column;
  const int lane = threadIdx.x % 32;
  Word raw_gate = {}, raw_up = {};
  if (column < args.dim) {
    raw_gate = load<bfloat16, kWidth>(static_cast<const bfloat16*>(args.gate) + index);
    raw_up = load<bfloat16, kWidth>(static_cast<const bfloat16*>(args.up) + index);
  }
  float gate[kWidth], up[kWidth];
  to_float(raw_gate, gate);
  to_float(raw_up, up);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) up[j] = swiglu_product(gate[j], up[j]);
  const Word product = rounded(up);
  Magnitude<bfloat16> magnitude;
  magnitude.add(product);
  const unsigned of_this = warp_max(magnitude.bits());
  if (lane == 0) of_warp[threadIdx.x / 32] = of_this;
  __syncthreads();
  const unsigned bits = warp_max(lane < static_cast<int>(blockDim.x) / 32 ? of_warp[lane] : 0U);
  const float scale = float8_scale<kE4m3>(__uint_as_float(bits), /*power_of_two=*/true);
  if (threadIdx.x == 0) args.product.reciprocals[blockIdx.x] = 1.0F / scale;
  if (column < args.dim) store_scaled(args.product, index, product, scale);
}

// What the backward makes of a row, in words of kWidth columns.
struct Gradients {
  using Element = bfloat16;
  struct Words {
    Word gate, up, grad;
    float weight;
  };
  static constexpr int kOutputs = 3;  // dgate, dup, product
  static constexpr int kBlocks = 2;
  const bfloat16* gate;
  const bfloat16* up;
  const bfloat16* grad;
  RowWeights weights;
  int64_t dim;
  __device__ Words load(int64_t row, int64_t column) const {
    const int64_t index = row * dim + column;
    return {kernels::load<bfloat16, kWidth>(gate + index), kernels::load<bfloat16, kWidth>(up + index),
            kernels::load<bfloat16, kWidth>(grad + index), weight_at(weights, index_of_weight(weights, row))};
  }
  // Returns what the words add to the gradient of the weight.
  __device__ static float make(const Words& words, Word (&out)[kOutputs]) {
    float dgate[kWidth], dup[kWidth], product[kWidth], dweight = 0;
    to_float(words.gate, dgate);
    to_float(words.up, dup);
    to_float(words.grad, product);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const WeightedSwigluGradients of = weighted_swiglu_gradients(dgate[j], dup[j], product[j], words.weight);
      dgate[j] = of.dgate;
      dup[j] = of.dup;
      product[j] = of.product;
      dweight += of.dweight;
    }
    out[0] = rounded(dgate);
    out[1] = rounded(dup);
    out[2] = rounded(product);
    return dweight;
  }
  __device__ static void values(const Words& words, float (&out)[kOutputs][kWidth]) {
    Word made[kOutputs];
    make(words, made);
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) to_float(made[k], out[k]);
  }
};

struct BackwardArgs {
  SwigluFloat8BackwardArgs of;
  Gradients source;
};

// Quantises dgate and dup of a row by its scales, and writes the gradient of its weight. All threads must call it.
__device__ inline void finish_row(const SwigluFloat8BackwardArgs& args, int64_t row, int64_t column,
                                  const Word (&made)[3], float dweight, Room& room) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Magnitude<bfloat16> of_gate, of_up;
  of_gate.add(made[0]);
  of_up.add(made[1]);
  const unsigned gate_bits = warp_max(of_gate.bits()), up_bits = warp_max(of_up.bits());
  dweight = lanes_sum<32>(dweight);
  if (lane == 0) room.first[warp] = gate_bits, room.second[warp] = up_bits, room.sum[warp] = dweight;
  __syncthreads();
  const bool inside = lane < static_cast<int>(blockDim.x) / 32;
  const unsigned most_of_gate = warp_max(inside ? room.first[lane] : 0U);
  const unsigned most_of_up = warp_max(inside ? room.second[lane] : 0U);
  // Two lanes find the two scales for their warp.
  const float scale =
      float8_scale<kE4m3>(__uint_as_float(lane == 0 ? most_of_gate : most_of_up), /*power_of_two=*/true);
  const float of_dgate = __shfl_sync(kWholeWarp, scale, 0), of_dup = __shfl_sync(kWholeWarp, scale, 1);
  if (threadIdx.x == 0) args.dgate.reciprocals[row] = 1.0F / scale;
  if (threadIdx.x == 1) args.dup.reciprocals[row] = 1.0F / scale;
  if (column < args.dim) {
    store_scaled(args.dgate, row * args.dim + column, made[0], of_dgate);
    store_scaled(args.dup, row * args.dim + column, made[1], of_dup);
  }
  if (warp != 0 || args.weights.grad_weights == nullptr) return;
  const float sum = lanes_sum<32>(inside ? room.sum[lane] : 0.0F);
  if (lane != 0) return;
  float& to = args.weights.grad_weights[index_of_weight(args.weights, row)];
  to = args.weights.accumulate ? to + sum : sum;
}

// Raises the largest magnitudes of a group's columns.
__device__ inline void raise_maxima(const SwigluFloat8BackwardArgs& args, int group, int64_t column,
                                    const ColumnMagnitudes<bfloat16, kWidth> (&found)[3]) {
  if (column >= args.dim) return;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    unsigned* to = reinterpret_cast<unsigned*>(args.amax) + (k * args.groups + group) * args.dim + column;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (found[k].bits(j) > static_cast<volatile unsigned*>(to)[j]) atomicMax(to + j, found[k].bits(j));
    }
  }
}

// A block has a share of neighbouring rows, so that it raises maxima once for each expert among them.
template <int kMost>
__global__ void __launch_bounds__(kMost, blocks_for(kMost)) rows_kernel(BackwardArgs args) {
  __shared__ Room rooms[2];
  const int64_t rows = args.of.rows, share = (rows + gridDim.x - 1) / gridDim.x;
  const int64_t first = blockIdx.x * share, end = min(rows, first + share);
  const int64_t column = int64_t{threadIdx.x} * kWidth;
  if (first >= end) return;
  int group = expert_of_row(args.of.ends, args.of.groups, first);
  ColumnMagnitudes<bfloat16, kWidth> found[3];
  Gradients::Words next = {};
  if (column < args.of.dim) next = args.source.load(first, column);
  for (int64_t row = first; row < end; ++row) {
    while (row >= args.of.ends[group]) {
      raise_maxima(args.of, group, column, found);
      for (auto& of : found) of = {};
      ++group;
    }
    const Gradients::Words words = next;
    if (row + 1 < end && column < args.of.dim) next = args.source.load(row + 1, column);
    Word made[3];
    const float dweight = Gradients::make(words, made);
#pragma unroll
    for (int k = 0; k < 3; ++k) found[k].add(made[k]);
    finish_row(args.of, row, column, made, dweight, rooms[row % 2]);
  }
  raise_maxima(args.of, group, column, found);
}

template <typename Args>
void launch_by_rows(void (*few)(Args), void (*many)(Args), int64_t blocks, int64_t dim, GpuStream stream,
                    const Args& args) {
  const int threads = static_cast<int>(ceil_div(dim, int64_t{32} * kWidth) * 32);
  launch(threads <= kFewThreads ? few : many, blocks, threads, 0, stream, args);
}

}  // namespace

void swiglu_float8_forward(const SwigluFloat8ForwardArgs& args, GpuStream stream) {
  launch_by_rows(forward_kernel<kFewThreads>, forward_kernel<kManyThreads>, args.rows, args.dim, stream, args);
}

void swiglu_float8_backward(const SwigluFloat8BackwardArgs& args, GpuStream stream) {
  const Gradients source{static_cast<const bfloat16*>(args.gate), static_cast<const bfloat16*>(args.up),
                         static_cast<const bfloat16*>(args.dproduct), args.weights, args.dim};
  const bool few = args.dim <= kFewThreads * kWidth;
  launch_by_rows(rows_kernel<kFewThreads>, rows_kernel<kManyThreads>,
                 resident_blocks(args.rows, blocks_for(few ? kFewThreads : kManyThreads)), args.dim, stream,
                 BackwardArgs{args, source});
  lines::LinesArgs<Gradients> with{
      source, lines::groups_of_experts(args.ends, args.line_ends, args.groups, args.rows, args.dim, args.length), {}};
  for (int k = 0; k < Gradients::kOutputs; ++k) {
    const int64_t scales = k * args.groups * args.dim;
    with.outputs[k] = {args.lines + k * args.dim * args.length, args.amax + scales, args.reciprocals + scales};
  }
  lines::launch_lines(with, stream);
}

}  // namespace titanium::kernels
