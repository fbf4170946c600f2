#include "titanium/ops/experts/expert_activation.h"

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

#include "titanium/ops/swiglu.h"

namespace titanium::ops {
namespace {

constexpr double kSlope = 1.702;

Dtype wide(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Gate and up of the clamped variant, in fp32 or fp64.
struct GateAndUp {
  Tensor gate_RF, up_RF;
};
GateAndUp by_turns(const Tensor& hidden_R2F) {
  const Tensor pairs_RF2 = hidden_R2F.unflatten(1, {-1, 2}).to(wide(hidden_R2F));
  return {pairs_RF2.select(2, 0), pairs_RF2.select(2, 1)};
}

Tensor clamped_forward(const Tensor& hidden_R2F, double limit) {
  const auto [raw_gate, raw_up] = by_turns(hidden_R2F);
  const Tensor gate_RF = raw_gate.clamp_max(limit), up_RF = raw_up.clamp(-limit, limit);
  return (gate_RF * at::sigmoid(kSlope * gate_RF) * (up_RF + 1)).to(hidden_R2F.scalar_type());
}

Tensor clamped_backward(const Tensor& grad_RF, const Tensor& hidden_R2F, double limit) {
  const auto [raw_gate, raw_up] = by_turns(hidden_R2F);
  const Tensor gate_RF = raw_gate.clamp_max(limit), up_RF = raw_up.clamp(-limit, limit);
  const Tensor sigmoid_RF = at::sigmoid(kSlope * gate_RF);
  const Tensor slope_RF = sigmoid_RF * (1 + kSlope * gate_RF * (1 - sigmoid_RF));
  const Tensor grad_gate = grad_RF * (up_RF + 1) * slope_RF * (raw_gate <= limit);
  const Tensor grad_up = grad_RF * gate_RF * sigmoid_RF * (raw_up.abs() <= limit);
  return at::stack({grad_gate, grad_up}, /*dim=*/2).flatten(1).to(hidden_R2F.scalar_type());
}

}  // namespace

Tensor expert_activation(const Tensors& hidden, const ActivationOptions& options) {
  if (options.kind == ActivationKind::kClampedSwiglu) return clamped_forward(hidden[0], options.limit);
  return swiglu_forward(hidden[0], hidden[1]).product_TF;
}

ActivationGrads expert_activation_backward(Tensor grad_RF, Tensors hidden, const Tensor& weights_R,
                                           const ActivationOptions& options) {
  const Dtype dtype = grad_RF.scalar_type();
  Tensor product_RF = expert_activation(hidden, options);
  Tensor grad_weights_R;
  if (weights_R.defined()) {
    grad_weights_R = (grad_RF.to(wide(grad_RF)) * product_RF).sum(1);
    const Tensor weights_R1 = weights_R.unsqueeze(1);
    product_RF = (product_RF * weights_R1).to(dtype);
    grad_RF = (grad_RF * weights_R1).to(dtype);
  }
  if (options.kind == ActivationKind::kClampedSwiglu) {
    return {{clamped_backward(grad_RF, hidden[0], options.limit)}, product_RF, grad_weights_R};
  }
  SwigluGrads grads = swiglu_backward(std::move(grad_RF), hidden[0], hidden[1], {.product = false});
  return {{grads.gate_TF, grads.up_TF}, product_RF, grad_weights_R};
}

}  // namespace titanium::ops
