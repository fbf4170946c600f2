#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/cuda/device/rotate.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/rope.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 8;  // per multiprocessor
constexpr int kHeads = 5;   // that a thread has under way: the 40 heads of Llama 3 8B in one go

// Where head 0 of a token's queries is, and where it would be in the keys if they followed on the queries.
template <typename T>
struct TokenHeads {
  __device__ TokenHeads(const RopeArgs& args, int64_t token)
      : q(static_cast<T*>(args.q) + token * args.q_row_stride),
        k(static_cast<T*>(args.k) + token * args.k_row_stride - args.q_heads * args.head_dim),
        q_heads(static_cast<int>(args.q_heads)),
        head_dim(static_cast<int>(args.head_dim)) {}
  __device__ T* operator[](int head) const { return (head < q_heads ? q : k) + head * head_dim; }
  T* q;
  T* k;
  int q_heads;
  int head_dim;
};

// The largest magnitudes of the queries and of the keys that a thread has rotated.
template <typename T>
struct HeadMagnitudes {
  template <int N>
  __device__ void add(const RopeArgs& args, int head, const Raw<T, N>& rotated) {
    if (args.q_amax == nullptr && args.k_amax == nullptr) return;
    Magnitude<T> magnitude;
    magnitude.add(rotated);
    if (head < args.q_heads) {
      of_q.add(magnitude);
    } else {
      of_k.add(magnitude);
    }
  }
  __device__ void raise(const RopeArgs& args) const {
    raise_to_block<kThreads>(args.q_amax, of_q);
    raise_to_block<kThreads>(args.k_amax, of_k);
  }
  Magnitude<T> of_q, of_k;
};

// A block treats a token; a thread keeps its pairs of the table for all the heads that it rotates.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) rope_kernel(RopeArgs args) {
  constexpr int N = kVectorSize<T>;
  const int words = static_cast<int>(args.head_dim / N);
  const int lanes = words < kThreads ? words : kThreads;
  const int heads_at_once = kThreads / lanes;
  const int first_head = threadIdx.x / lanes;
  const int heads = static_cast<int>(args.q_heads + args.k_heads);
  HeadMagnitudes<T> magnitudes;
  const int64_t first_token =
      first_head < heads_at_once ? blockIdx.x : args.tokens;  // lanes that are left over do nothing
  for (int64_t token = first_token; token < args.tokens; token += gridDim.x) {
    const int64_t position = token - quotient(token, args.seq_len) * args.seq_len;
    const TokenHeads<T> head_at(args, token);
    for (int word = threadIdx.x % lanes; word < words; word += lanes) {
      const int column = word * N;
      float table[N];
      to_float(load_again<float, N>(args.table + position * args.head_dim + column), table);
      for (int begin = first_head; begin < heads; begin += heads_at_once * kHeads) {
        Raw<T, N> raw[kHeads];
#pragma unroll
        for (int i = 0; i < kHeads; ++i) {
          const int head = begin + i * heads_at_once;
          if (head < heads) raw[i] = load<T, N>(head_at[head] + column);
        }
#pragma unroll
        for (int i = 0; i < kHeads; ++i) {
          const int head = begin + i * heads_at_once;
          if (head >= heads) break;
          float values[N];
          to_float(raw[i], values);
          rotate(values, table, args.inverse);
          const auto rotated = from_float<T, N>(values);
          store<T, N>(head_at[head] + column, rotated);
          magnitudes.add(args, head, rotated);
        }
      }
    }
  }
  magnitudes.raise(args);
}

// As rope_kernel; a thread has the same word of both halves.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) rope_halves_kernel(RopeArgs args) {
  constexpr int N = kVectorSize<T>, kHeadsOfHalves = 3;
  const int half = static_cast<int>(args.head_dim / 2), words = half / N;
  const int lanes = words < kThreads ? words : kThreads;
  const int heads_at_once = kThreads / lanes;
  const int first_head = threadIdx.x / lanes;
  const int heads = static_cast<int>(args.q_heads + args.k_heads);
  HeadMagnitudes<T> magnitudes;
  const int64_t first_token = first_head < heads_at_once ? blockIdx.x : args.tokens;
  for (int64_t token = first_token; token < args.tokens; token += gridDim.x) {
    const int64_t position = token - quotient(token, args.seq_len) * args.seq_len;
    const TokenHeads<T> head_at(args, token);
    for (int word = threadIdx.x % lanes; word < words; word += lanes) {
      const int column = word * N;
      float table[2 * N];
      to_float(load_again<float, 2 * N>(args.table + position * args.head_dim + 2 * column), table);
      for (int begin = first_head; begin < heads; begin += heads_at_once * kHeadsOfHalves) {
        Raw<T, N> raw[kHeadsOfHalves][2];
#pragma unroll
        for (int i = 0; i < kHeadsOfHalves; ++i) {
          const int head = begin + i * heads_at_once;
          if (head >= heads) break;
          raw[i][0] = load<T, N>(head_at[head] + column);
          raw[i][1] = load<T, N>(head_at[head] + half + column);
        }
#pragma unroll
        for (int i = 0; i < kHeadsOfHalves; ++i) {
          const int head = begin + i * heads_at_once;
          if (head >= heads) break;
          float real[N], imaginary[N];
          to_float(raw[i][0], real);
          to_float(raw[i][1], imaginary);
          rotate_halves(real, imaginary, table, args.inverse);
          const auto first = from_float<T, N>(real), second = from_float<T, N>(imaginary);
          store<T, N>(head_at[head] + column, first);
          store<T, N>(head_at[head] + half + column, second);
          magnitudes.add(args, head, first);
          magnitudes.add(args, head, second);
        }
      }
    }
  }
  magnitudes.raise(args);
}

// Any even head_dim and any alignment: a pair at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) plain_rope_kernel(RopeArgs args) {
  const int half = static_cast<int>(args.head_dim / 2), pairs = static_cast<int>(args.q_heads + args.k_heads) * half;
  HeadMagnitudes<T> magnitudes;
  for (int64_t token = blockIdx.x; token < args.tokens; token += gridDim.x) {
    const int64_t position = token - quotient(token, args.seq_len) * args.seq_len;
    const TokenHeads<T> head_at(args, token);
    for (int pair = threadIdx.x; pair < pairs; pair += kThreads) {
      const int head = pair / half, number = pair - head * half;
      const int apart = args.halves ? half : 1;  // the two of a pair
      T* at = head_at[head] + (args.halves ? number : 2 * number);
      const float* entry = args.table + position * args.head_dim + 2 * number;
      float values[2] = {static_cast<float>(at[0]), static_cast<float>(at[apart])};
      const float table[2] = {entry[0], entry[1]};
      rotate(values, table, args.inverse);
      at[0] = static_cast<T>(values[0]);
      at[apart] = static_cast<T>(values[1]);
      magnitudes.add(args, head, from_float<T, 2>(values));
    }
  }
  magnitudes.raise(args);
}

}  // namespace

void rope(const RopeArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    const int64_t word_length = args.halves ? args.head_dim / 2 : args.head_dim;
    const bool vector = word_length % kVectorSize<T> == 0 && vector_aligned(args.q, args.q_row_stride, sizeof(T)) &&
                        vector_aligned(args.k, args.k_row_stride, sizeof(T)) && vector_aligned(args.table, 0, 1);
    const auto kernel = args.halves ? rope_halves_kernel<T> : rope_kernel<T>;
    launch(vector ? kernel : plain_rope_kernel<T>, args.tokens, kThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
