// CUDA's bfloat16 for AMD GPUs: the upper half of a float, rounded to nearest even. hip_bfloat16 of older ROCm lacks
// most of it.
#pragma once

#include "titanium/kernels/hip/cuda_runtime.h"

struct __nv_bfloat16 {
  uint16_t bits;

  __nv_bfloat16() = default;
  __host__ __device__ __nv_bfloat16(float value) : bits(round(value)) {}
  __host__ __device__ operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
  }

  static __host__ __device__ uint16_t round(float value) {
    uint32_t word;
    __builtin_memcpy(&word, &value, sizeof word);
    if ((word & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FFF;  // not a number, as CUDA writes it
    return static_cast<uint16_t>((word + 0x7FFFU + (word >> 16 & 1U)) >> 16);
  }
};

struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

__host__ __device__ inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
__host__ __device__ inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
__host__ __device__ inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
