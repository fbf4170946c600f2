#include "titanium/kernels/cuda/device/rms_norm.cuh"

namespace titanium::kernels {
namespace {

using rms::Cut;
using rms::normalised;

// A block treats its rows, or its row, and is done: many blocks on a multiprocessor keep the memory busy.
template <typename T, typename Cut>
__global__ void __launch_bounds__(Cut::kThreads) forward_kernel(RmsNormForwardArgs args) {
  constexpr int kGroup = Cut::kGroup, kHeld = Cut::kHeld, kSize = kVectorSize<T>;
  __shared__ BlockSumRoom<float> room;
  Magnitude<T> magnitude;
  const int member = threadIdx.x % kGroup;
  const int64_t row = int64_t{blockIdx.x} * Cut::kRows + threadIdx.x / kGroup, begin = row * args.dim;
  Raw<T, kSize> x[kHeld] = {};
  bool here[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t column = int64_t{member + i * kGroup} * kSize;
    here[i] = row < args.rows && column < args.dim;
    if (here[i]) x[i] = load<T, kSize>(static_cast<const T*>(args.x) + begin + column);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    float values[kSize];
    to_float(x[i], values);
    for (int j = 0; j < kSize; ++j) squares += values[j] * values[j];
  }
  squares = group_sum<kGroup, Cut::kThreads>(squares, room);
  const float rstd = rsqrtf(squares / static_cast<float>(args.dim) + args.eps);
  if (member == 0 && row < args.rows) args.rstd[row] = rstd;
  if (args.y == nullptr && args.amax == nullptr) return;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (!here[i]) continue;
    const int64_t column = int64_t{member + i * kGroup} * kSize;
    float values[kSize], weight[kSize];
    load_floats<kSize>(args.weight, args.weight_type, column, weight);
    to_float(x[i], values);
    for (int j = 0; j < kSize; ++j) values[j] = normalised(values[j], rstd, weight[j]);
    const auto y = from_float<T, kSize>(values);
    if (args.y != nullptr) store<T, kSize>(static_cast<T*>(args.y) + begin + column, y);
    if (args.amax != nullptr) magnitude.add(y);
  }
  raise_to_block<Cut::kThreads>(args.amax, magnitude);
}

// Any dim, any alignment.
template <typename T>
__global__ void __launch_bounds__(rms::kPlainThreads, rms::kPlainBlocks) plain_forward_kernel(RmsNormForwardArgs args) {
  __shared__ BlockSumRoom<float> rooms[2];
  Magnitude<T> magnitude;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(args.x) + row * args.dim;
    float squares = 0;
    for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) {
      const float value = static_cast<float>(x[column]);
      squares += value * value;
    }
    squares = block_sum<rms::kPlainThreads>(squares, rooms[turn]);
    turn ^= 1;
    const float rstd = rsqrtf(squares / static_cast<float>(args.dim) + args.eps);
    if (threadIdx.x == 0) args.rstd[row] = rstd;
    for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) {
      const float value = static_cast<float>(x[column]);
      float weight[1];
      load_floats<1>(args.weight, args.weight_type, column, weight);
      const float values[1] = {normalised(value, rstd, weight[0])};
      const auto y = from_float<T, 1>(values);
      if (args.y != nullptr) store<T, 1>(static_cast<T*>(args.y) + row * args.dim + column, y);
      magnitude.add(y);
    }
  }
  raise_to_block<rms::kPlainThreads>(args.amax, magnitude);
}

constexpr int kApplyThreads = 256;
constexpr int kApplyBlocks = 8;

template <typename T, int N>
__global__ void __launch_bounds__(kApplyThreads, kApplyBlocks) apply_kernel(RmsNormApplyArgs args) {
  const int64_t words = args.dim / N, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < args.rows * words; i += step) {
    const Raw<T, N> x = load<T, N>(static_cast<const T*>(args.x) + i * N);
    const int64_t row = quotient(i, words), column = (i - row * words) * N;
    float values[N], weight[N];
    load_floats<N>(args.weight, args.weight_type, column, weight);
    const float rstd = args.rstd[row];
    to_float(x, values);
    for (int j = 0; j < N; ++j) values[j] = normalised(values[j], rstd, weight[j]);
    store_floats<T, N>(static_cast<T*>(args.y) + i * N, values);
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    bool vector = args.dim % kVectorSize<T> == 0 && vector_aligned(args.weight, 0, 1);
    for (const void* pointer : {args.x, static_cast<const void*>(args.y)})
      vector = vector && vector_aligned(pointer, args.dim, sizeof(T));
    const bool done =
        vector && rms::with_cut<Cut<16, 1, 256>, Cut<32, 2, 256>, Cut<32, 4, 128>, Cut<64, 4, 64>, Cut<128, 4, 128>,
                                Cut<256, 4, 256>, Cut<512, 4, 512>>(args.dim / kVectorSize<T>, [&](auto cut) {
          launch(forward_kernel<T, decltype(cut)>, ceil_div(args.rows, cut.kRows), cut.kThreads, 0, stream, args);
        });
    if (!done)
      launch(plain_forward_kernel<T>, resident_blocks(args.rows, rms::kPlainBlocks), rms::kPlainThreads, 0, stream,
             args);
  });
}

void rms_norm_apply(const RmsNormApplyArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.x, args.dim, sizeof(T)) &&
                        vector_aligned(args.y, args.dim, sizeof(T)) && vector_aligned(args.weight, 0, 1);
    const int64_t words = args.rows * (vector ? args.dim / kSize : args.dim);
    launch(vector ? apply_kernel<T, kSize> : apply_kernel<T, 1>, ceil_div(words, kApplyThreads), kApplyThreads, 0,
           stream, args);
  });
}

}  // namespace titanium::kernels
