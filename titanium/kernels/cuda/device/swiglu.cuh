// The formulas of SwiGLU, in one place, so that every kernel that makes the product gives the same bits.
#pragma once

#include "titanium/kernels/cuda/device/exponential.cuh"

namespace titanium::kernels {

__device__ inline float sigmoid(float x) { return reciprocal_approximately(1.0F + exp_approximately(-x)); }

__device__ inline float swiglu_product(float gate, float up) { return up * (gate * sigmoid(gate)); }

}  // namespace titanium::kernels
