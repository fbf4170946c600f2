// Reading and writing several elements at once, as floats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "titanium/kernels/element_type.h"

namespace titanium::kernels {

using bfloat16 = __nv_bfloat16;

// Calls `call` with a value of the C++ type that `type` names. `call` is of the side that calls.
#pragma nv_exec_check_disable
template <typename Call>
__host__ __device__ void with_type(ElementType type, const Call& call) {
  if (type == ElementType::kBFloat16) {
    call(bfloat16{});
  } else {
    call(float{});
  }
}

// Elements of T in a 128-bit access.
template <typename T>
constexpr int kVectorSize = 16 / static_cast<int>(sizeof(T));

// Elements of a thread's step over arrays of several types of which the widest has `bytes`: 16 bytes of it. Lanes then
// read and write whole sectors together. Two words of 16 bytes per lane would leave every sector half written at first,
// which costs two thirds of the memory's speed, or fetch it twice.
constexpr int step_of_widest(int bytes) { return 16 / bytes; }

template <int kBytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = unsigned short;
};
template <>
struct WordOf<4> {
  using Type = unsigned int;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

// N elements of T as they are in memory, in as few registers as possible. Keep values in this form between a load and
// their use, so that many loads can be under way.
template <typename T, int N>
struct Raw {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  static constexpr int kWordBytes = kBytes < 16 ? kBytes : 16;
  static constexpr int kWords = kBytes / kWordBytes;
  using Word = typename WordOf<kWordBytes>::Type;
  Word words[kWords];
};

// The address must be a multiple of min(16, N * sizeof(T)). `load` is for what is read once; `load_again` keeps the
// line in L1.
template <typename T, int N>
__device__ Raw<T, N> load(const T* from) {
  Raw<T, N> raw;
#pragma unroll
  for (int i = 0; i < Raw<T, N>::kWords; ++i)
    raw.words[i] = __ldcs(reinterpret_cast<const typename Raw<T, N>::Word*>(from) + i);
  return raw;
}
template <typename T, int N>
__device__ Raw<T, N> load_again(const T* from) {
  Raw<T, N> raw;
#pragma unroll
  for (int i = 0; i < Raw<T, N>::kWords; ++i)
    raw.words[i] = *(reinterpret_cast<const typename Raw<T, N>::Word*>(from) + i);
  return raw;
}
template <typename T, int N>
__device__ void store(T* to, const Raw<T, N>& raw) {
#pragma unroll
  for (int i = 0; i < Raw<T, N>::kWords; ++i) *(reinterpret_cast<typename Raw<T, N>::Word*>(to) + i) = raw.words[i];
}

template <int N>
__device__ void to_float(const Raw<float, N>& raw, float (&out)[N]) {
  const float* values = reinterpret_cast<const float*>(&raw);
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = values[i];
}
template <int N>
__device__ void to_float(const Raw<bfloat16, N>& raw, float (&out)[N]) {
  if constexpr (N == 1) {
    out[0] = __uint_as_float(static_cast<unsigned>(raw.words[0]) << 16);
  } else {
    const unsigned* pairs = reinterpret_cast<const unsigned*>(&raw);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      out[2 * i] = __uint_as_float(pairs[i] << 16);
      out[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000U);
    }
  }
}

// Rounded to nearest even.
template <typename T, int N>
__device__ Raw<T, N> from_float(const float (&values)[N]) {
  Raw<T, N> raw;
  if constexpr (sizeof(T) == 4) {
    float* out = reinterpret_cast<float*>(&raw);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = values[i];
  } else if constexpr (N == 1) {
    raw.words[0] = __bfloat16_as_ushort(__float2bfloat16_rn(values[0]));
  } else {
    __nv_bfloat162* out = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) out[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
  }
  return raw;
}
template <typename T, int N>
__device__ void store_floats(T* to, const float (&values)[N]) {
  store<T, N>(to, from_float<T, N>(values));
}

// N floats from memory of a type that is known at run time.
template <int N>
__device__ void load_floats(const void* from, ElementType type, int64_t index, float (&out)[N]) {
  if (type == ElementType::kBFloat16) {
    to_float(load_again<bfloat16, N>(static_cast<const bfloat16*>(from) + index), out);
  } else {
    to_float(load_again<float, N>(static_cast<const float*>(from) + index), out);
  }
}

// a / b, without the long 64-bit division where 32 bits are enough.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  if (((static_cast<uint64_t>(a) | static_cast<uint64_t>(b)) >> 32) == 0)
    return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

// Whether rows that begin at `pointer` and lie `stride` elements apart can be read with 128-bit accesses. A single
// row may have any stride: pass 0.
__host__ __device__ inline bool vector_aligned(const void* pointer, int64_t stride, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride * element_bytes % 16 == 0;
}

}  // namespace titanium::kernels
