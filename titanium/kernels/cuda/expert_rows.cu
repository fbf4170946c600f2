#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/expert_rows.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kGatherBlocks = 8;  // per multiprocessor

// What is added to a row before it is weighed.
enum class Second { kNothing, kBias, kRow };
constexpr int combine_blocks(int batch, Second second) {
  return batch * (second == Second::kNothing ? 1 : 2) > 4 ? 3 : 4;
}

// A thread has N neighbouring columns of one token.
template <int N>
struct Place {
  __device__ Place(int64_t dim) {
    const int64_t words = dim / N, i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    token = quotient(i, words);
    column = (i - token * words) * N;
  }
  int64_t token, column;
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kGatherBlocks) gather_kernel(GatherRowsArgs args) {
  const Place<N> at(args.dim);
  if (at.token >= args.tokens) return;
  const auto raw = load<T, N>(static_cast<const T*>(args.x) + at.token * args.dim + at.column);
  const int32_t* rows = args.row_of_choice + at.token * args.top_k;
  T* out = static_cast<T*>(args.rows) + at.column;
  if (args.weights == nullptr) {
#pragma unroll 4
    for (int k = 0; k < args.top_k; ++k) store<T, N>(out + rows[k] * args.dim, raw);
    return;
  }
  const float* weights = args.weights + at.token * args.top_k;
  float x[N];
  to_float(raw, x);
#pragma unroll 4
  for (int k = 0; k < args.top_k; ++k) {
    float values[N];
    for (int j = 0; j < N; ++j) values[j] = weights[k] * x[j];
    store_floats<T, N>(out + rows[k] * args.dim, values);
  }
}

// kBatch rows of a token are under way at once.
template <typename T, int N, int kBatch, Second kSecond>
__global__ void __launch_bounds__(kThreads, combine_blocks(kBatch, kSecond)) combine_kernel(CombineRowsArgs args) {
  const Place<N> at(args.dim);
  if (at.token >= args.tokens) return;
  const T* in = static_cast<const T*>(args.rows) + at.column;
  const T* second = static_cast<const T*>(kSecond == Second::kBias ? args.bias : args.more_rows) + at.column;
  const int64_t choice = at.token * args.top_k, offset = at.token * args.dim + at.column;
  Raw<T, N> addend = {};
  if (args.addend != nullptr) addend = load<T, N>(static_cast<const T*>(args.addend) + offset);
  float sum[N] = {};
  for (int first = 0; first < args.top_k; first += kBatch) {
    Raw<T, N> rows[kBatch] = {}, seconds[kBatch] = {};
    float weights[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= args.top_k) continue;
      const int64_t row = args.row_of_choice[choice + first + i];
      rows[i] = load<T, N>(in + row * args.dim);
      if (kSecond == Second::kBias) seconds[i] = load_again<T, N>(second + args.experts[choice + first + i] * args.dim);
      if (kSecond == Second::kRow) seconds[i] = load<T, N>(second + row * args.dim);
      weights[i] = args.weights != nullptr ? args.weights[choice + first + i] : 1.0F;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= args.top_k) continue;
      float values[N], more[N];
      to_float(rows[i], values);
      to_float(seconds[i], more);
      for (int j = 0; j < N; ++j)
        sum[j] += weights[i] * (kSecond == Second::kNothing ? values[j] : values[j] + more[j]);
    }
  }
  float more[N];
  to_float(addend, more);
  if (args.addend != nullptr) {
    for (int j = 0; j < N; ++j) sum[j] += more[j];
  }
  store_floats<T, N>(static_cast<T*>(args.y) + offset, sum);
}

template <typename T, int N>
void combine(const CombineRowsArgs& args, GpuStream stream) {
  const int64_t blocks = ceil_div(args.tokens * (args.dim / N), kThreads);
  auto* kernel = combine_kernel<T, N, 8, Second::kNothing>;
  if (args.bias != nullptr) {
    kernel = combine_kernel<T, N, 4, Second::kBias>;
  } else if (args.more_rows != nullptr) {
    kernel = args.top_k == 1 ? combine_kernel<T, N, 1, Second::kRow> : combine_kernel<T, N, 4, Second::kRow>;
  } else if (args.top_k == 1) {
    kernel = combine_kernel<T, N, 1, Second::kNothing>;
  } else if (args.top_k <= 4) {
    kernel = combine_kernel<T, N, 4, Second::kNothing>;
  }
  launch(kernel, blocks, kThreads, 0, stream, args);
}

constexpr int kTaken = 4;  // words that a thread has under way

template <int kBytes>
__global__ void __launch_bounds__(kThreads) take_kernel(TakeRowsArgs args) {
  using Word = Raw<uint8_t, kBytes>;
  const int64_t words = args.row_bytes / kBytes, begin = int64_t{blockIdx.x} * kThreads * kTaken + threadIdx.x;
  Word raw[kTaken];
#pragma unroll
  for (int i = 0; i < kTaken; ++i) {
    const int64_t at = begin + i * kThreads, row = quotient(at, words);
    if (row >= args.rows) break;
    raw[i] = load<uint8_t, kBytes>(static_cast<const uint8_t*>(args.x) + args.index[row] * args.row_bytes +
                                   (at - row * words) * kBytes);
  }
#pragma unroll
  for (int i = 0; i < kTaken; ++i) {
    const int64_t at = begin + i * kThreads;
    if (at < args.rows * words) store<uint8_t, kBytes>(static_cast<uint8_t*>(args.y) + at * kBytes, raw[i]);
  }
}

template <int kBytes>
void take(const TakeRowsArgs& args, GpuStream stream) {
  const int64_t words = args.rows * (args.row_bytes / kBytes);
  launch(take_kernel<kBytes>, ceil_div(words, int64_t{kThreads} * kTaken), kThreads, 0, stream, args);
}

template <typename T>
bool all_aligned(int64_t dim, std::initializer_list<const void*> arrays) {
  bool aligned = true;
  for (const void* array : arrays) aligned = aligned && vector_aligned(array, dim, sizeof(T));
  return aligned;
}

}  // namespace

void gather_rows(const GatherRowsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = all_aligned<T>(args.dim, {args.x, args.rows});
    const int64_t words = args.tokens * (vector ? args.dim / kSize : args.dim);
    launch(vector ? gather_kernel<T, kSize> : gather_kernel<T, 1>, ceil_div(words, kThreads), kThreads, 0, stream,
           args);
  });
}

void combine_rows(const CombineRowsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    if (all_aligned<T>(args.dim, {args.rows, args.addend, args.y, args.bias, args.more_rows})) {
      combine<T, kVectorSize<T>>(args, stream);
    } else {
      combine<T, 1>(args, stream);
    }
  });
}

void take_rows(const TakeRowsArgs& args, GpuStream stream) {
  const auto fits = [&](int64_t bytes) {
    return ((reinterpret_cast<uintptr_t>(args.x) | reinterpret_cast<uintptr_t>(args.y)) % bytes |
            args.row_bytes % bytes) == 0;
  };
  fits(16) ? take<16>(args, stream) : fits(4) ? take<4>(args, stream) : take<2>(args, stream);
}

}  // namespace titanium::kernels
