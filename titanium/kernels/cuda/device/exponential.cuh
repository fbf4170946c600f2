// The special-function unit's exponential and reciprocal: relative errors below 2^-22, results below 2^-126 are 0.
#pragma once

namespace titanium::kernels {

constexpr float kLog2OfE = 1.44269504F;

__device__ inline float exp2_approximately(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ inline float exp_approximately(float x) { return exp2_approximately(x * kLog2OfE); }

__device__ inline float reciprocal_approximately(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace titanium::kernels
