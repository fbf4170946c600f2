// The formulas of SwiGLU, in one place, so that every kernel that makes the product gives the same bits.
#pragma once

#include "titanium/kernels/cuda/device/exponential.cuh"

namespace titanium::kernels {

__device__ inline float sigmoid(float x) { return reciprocal_approximately(1.0F + exp_approximately(-x)); }

__device__ inline float swiglu_product(float gate, float up) { return up * (gate * sigmoid(gate)); }

// The backward with a weight, y = weight * product: from the gradient of y / weight those of gate and up, the weighted
// product, and what the element adds to the gradient of the weight.
struct WeightedSwigluGradients {
  float dgate, dup, product, dweight;
};
__device__ inline WeightedSwigluGradients weighted_swiglu_gradients(float gate, float up, float grad, float weight) {
  const float s = sigmoid(gate), silu = gate * s;
  const float slope = s * (1.0F + gate * (1.0F - s));
  const float product = swiglu_product(gate, up), weighted = grad * weight;
  return {weighted * up * slope, weighted * silu, product * weight, grad * product};
}

}  // namespace titanium::kernels
