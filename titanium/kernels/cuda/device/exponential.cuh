// The special-function unit's exponential and reciprocal: relative errors below 2^-22, results below 2^-126 are 0. GPUs
// that are not NVIDIA's compute them in their own way.
#pragma once

namespace titanium::kernels {

constexpr float kLog2OfE = 1.44269504F;

__device__ inline float exp2_approximately(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return x < -126.0F ? 0.0F : exp2f(x);
#endif
}

__device__ inline float exp_approximately(float x) { return exp2_approximately(x * kLog2OfE); }

__device__ inline float reciprocal_approximately(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0F / x;
#endif
}

}  // namespace titanium::kernels
