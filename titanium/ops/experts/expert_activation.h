// What an expert does between its two products. R rows, F columns.
#pragma once

#include "titanium/ops/experts/expert_operand.h"
#include "titanium/ops/record.h"

namespace titanium::ops {

enum class ActivationKind {
  kSwiglu,         // silu(gate) * up; `hidden` is {gate, up}, [R, F] each
  kClampedSwiglu,  // gate * sigmoid(1.702 gate) * (up + 1), clamped; `hidden` is one [R, 2F], gate and up interleaved
};
struct ActivationOptions {
  ActivationKind kind = ActivationKind::kSwiglu;
  double limit = 0;  // gate is at most that, up at most that in magnitude
};

// A bias [E, 2F] that is added to the rows of each expert first, and where these end; only with one hidden tensor.
struct HiddenBias {
  Tensor bias_EH;  // in the dtype of the rows; undefined: there is none
  Tensor ends_E;
};

// `in_float8`: only for products of float8 on tensor cores, so that results may be made for them alone.
ExpertOperand expert_activation(const Tensors& hidden, const HiddenBias& bias, const ActivationOptions& options,
                                bool in_float8);

struct ActivationGrads {
  std::vector<ExpertOperand> hidden;  // of the sum with the bias, where there is one
  ExpertOperand weighted_product_RF;  // the result of the forward, times the weights
  Tensor weights_R;                   // undefined without weights
};
// `grad_RF` is the gradient of the result times the weights [R], as it would be if all weights were 1. Without weights
// they are 1. Takes `grad_RF` and `hidden` over: the results may lie in their memory.
ActivationGrads expert_activation_backward(Tensor grad_RF, Tensors hidden, const HiddenBias& bias,
                                           const Tensor& weights_R, const ActivationOptions& options, bool in_float8);

}  // namespace titanium::ops
