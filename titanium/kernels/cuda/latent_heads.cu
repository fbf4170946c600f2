#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/rotate.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/latent_heads.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4;  // per multiprocessor
constexpr int kBatch = 4;   // words that a thread has under way

// What a block has: one token.
template <typename T>
struct Token {
  static constexpr int N = kVectorSize<T>;
  __device__ explicit Token(const LatentHeadsArgs& args)
      : heads(static_cast<int>(args.heads)),
        nope(static_cast<int>(args.nope_dim)),
        rope(static_cast<int>(args.rope_dim)),
        value(static_cast<int>(args.value_dim)),
        q(static_cast<T*>(args.q) + blockIdx.x * args.heads * (args.nope_dim + args.rope_dim)),
        k(static_cast<T*>(args.k) + blockIdx.x * args.heads * (args.nope_dim + args.rope_dim)),
        v(static_cast<T*>(args.v) + blockIdx.x * args.heads * args.value_dim),
        kv(static_cast<T*>(args.kv) + blockIdx.x * args.heads * (args.nope_dim + args.value_dim)),
        shared(static_cast<T*>(args.shared) + blockIdx.x * args.rope_dim),
        table(args.table + (blockIdx.x - quotient(blockIdx.x, args.seq_len) * args.seq_len) * args.rope_dim) {}

  // Where an element of kv lies in k or v.
  __device__ T* place(int index) const {
    const int head = index / (nope + value), column = index - head * (nope + value);
    return column < nope ? k + head * (nope + rope) + column : v + head * value + column - nope;
  }

  int heads, nope, rope, value;
  T *q, *k, *v, *kv, *shared;
  const float* table;
};

// Copies kv to k and v, or the other way round.
template <typename T, bool kForward>
__device__ void copy_heads(const Token<T>& token) {
  constexpr int N = Token<T>::N;
  const int all = token.heads * (token.nope + token.value);
  for (int first = static_cast<int>(threadIdx.x) * N; first < all; first += kThreads * N * kBatch) {
    Raw<T, N> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = first + i * kThreads * N;
      if (index < all) raw[i] = load<T, N>(kForward ? token.kv + index : token.place(index));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = first + i * kThreads * N;
      if (index < all) store<T, N>(kForward ? token.place(index) : token.kv + index, raw[i]);
    }
  }
}

template <typename T>
__device__ Raw<T, Token<T>::N> rotated(const Raw<T, Token<T>::N>& raw, const float* table, bool inverse) {
  constexpr int N = Token<T>::N;
  float values[N], entries[N];
  to_float(raw, values);
  to_float(load_again<float, N>(table), entries);
  rotate(values, entries, inverse);
  return from_float<T, N>(values);
}

// Rotates the last columns of all heads of q; in the forward, also writes those of k.
template <typename T, bool kForward>
__device__ void rotate_heads(const Token<T>& token) {
  constexpr int N = Token<T>::N;
  for (int index = static_cast<int>(threadIdx.x) * N; index < token.heads * token.rope; index += kThreads * N) {
    const int head = index / token.rope, column = index - head * token.rope;
    const int at = head * (token.nope + token.rope) + token.nope + column;
    store<T, N>(token.q + at, rotated<T>(load<T, N>(token.q + at), token.table + column, !kForward));
    if (kForward) {
      store<T, N>(token.k + at, rotated<T>(load_again<T, N>(token.shared + column), token.table + column, false));
    }
  }
}

// The gradient of what all heads share: threads of a column sum every so many heads, and one of them adds these up.
template <typename T>
__device__ void sum_shared(const Token<T>& token) {
  constexpr int N = Token<T>::N;
  __shared__ float parts[kThreads][N];
  const int words = token.rope / N, groups = kThreads / words;
  const int word = static_cast<int>(threadIdx.x) % words, group = static_cast<int>(threadIdx.x) / words;
  float sum[N] = {};
  for (int head = group; group < groups && head < token.heads; head += groups) {
    float values[N];
    to_float(load<T, N>(token.k + head * (token.nope + token.rope) + token.nope + word * N), values);
    for (int j = 0; j < N; ++j) sum[j] += values[j];
  }
  for (int j = 0; j < N; ++j) parts[threadIdx.x][j] = sum[j];
  __syncthreads();
  if (group > 0) return;
  for (int other = 1; other < groups && other < token.heads; ++other) {
    for (int j = 0; j < N; ++j) sum[j] += parts[other * words + word][j];
  }
  float entries[N];
  to_float(load_again<float, N>(token.table + word * N), entries);
  rotate(sum, entries, /*inverse=*/true);
  store_floats<T, N>(token.shared + word * N, sum);
}

template <typename T, bool kForward>
__global__ void __launch_bounds__(kThreads, kBlocks) heads_kernel(LatentHeadsArgs args) {
  const Token<T> token(args);
  copy_heads<T, kForward>(token);
  rotate_heads<T, kForward>(token);
  if constexpr (!kForward) sum_shared(token);
}

template <bool kForward>
void launch_heads(const LatentHeadsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    launch(heads_kernel<decltype(element), kForward>, args.tokens, kThreads, 0, stream, args);
  });
}

}  // namespace

void latent_heads_forward(const LatentHeadsArgs& args, GpuStream stream) { launch_heads<true>(args, stream); }

void latent_heads_backward(const LatentHeadsArgs& args, GpuStream stream) { launch_heads<false>(args, stream); }

}  // namespace titanium::kernels
