#include "titanium/ops/experts/expert_activation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/quantize.h"
#include "titanium/ops/swiglu.h"

namespace titanium::ops {
namespace {

constexpr double kSlope = 1.702;

Dtype wide(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Gate and up of the clamped variant, in fp32 or fp64.
struct GateAndUp {
  Tensor gate_RF, up_RF;
};
GateAndUp by_turns(const Tensor& hidden_R2F, const HiddenBias& bias) {
  Tensor sum_R2F = hidden_R2F.to(wide(hidden_R2F));
  if (bias.bias_EH.defined()) {
    sum_R2F = sum_R2F + bias.bias_EH.index_select(0, expert_of_row(bias.ends_E, hidden_R2F.size(0)));
  }
  const Tensor pairs_RF2 = sum_R2F.unflatten(1, {-1, 2});
  return {pairs_RF2.select(2, 0), pairs_RF2.select(2, 1)};
}

Tensor clamped_forward(const Tensor& hidden_R2F, const HiddenBias& bias, double limit) {
  const auto [raw_gate, raw_up] = by_turns(hidden_R2F, bias);
  const Tensor gate_RF = raw_gate.clamp_max(limit), up_RF = raw_up.clamp(-limit, limit);
  return (gate_RF * at::sigmoid(kSlope * gate_RF) * (up_RF + 1)).to(hidden_R2F.scalar_type());
}

Tensor clamped_backward(const Tensor& grad_RF, const Tensor& hidden_R2F, const HiddenBias& bias, double limit) {
  const auto [raw_gate, raw_up] = by_turns(hidden_R2F, bias);
  const Tensor gate_RF = raw_gate.clamp_max(limit), up_RF = raw_up.clamp(-limit, limit);
  const Tensor sigmoid_RF = at::sigmoid(kSlope * gate_RF);
  const Tensor slope_RF = sigmoid_RF * (1 + kSlope * gate_RF * (1 - sigmoid_RF));
  const Tensor grad_gate = grad_RF * (up_RF + 1) * slope_RF * (raw_gate <= limit);
  const Tensor grad_up = grad_RF * gate_RF * sigmoid_RF * (raw_up.abs() <= limit);
  return at::stack({grad_gate, grad_up}, /*dim=*/2).flatten(1).to(hidden_R2F.scalar_type());
}

const void* memory_of(const Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

Tensor clamped_forward_kernel(const Tensor& hidden_R2F, const HiddenBias& bias, double limit) {
  const int64_t rows = hidden_R2F.size(0), dim = hidden_R2F.size(1) / 2;
  const Tensor product_RF = at::empty({rows, dim}, hidden_R2F.options());
  launch(kernels::ClampedSwigluForwardArgs{.type = element_type(hidden_R2F),
                                           .bias_type = element_type(hidden_R2F),
                                           .fused = hidden_R2F.const_data_ptr(),
                                           .bias = memory_of(bias.bias_EH),
                                           .ends = bias.ends_E.const_data_ptr<int32_t>(),
                                           .product = product_RF.mutable_data_ptr(),
                                           .fused_stride = 2 * dim,
                                           .product_stride = dim,
                                           .rows = rows,
                                           .dim = dim,
                                           .num_experts = bias.ends_E.size(0),
                                           .limit = static_cast<float>(limit)});
  return product_RF;
}

kernels::RowWeights row_weights(const Tensor& weights_R, const Tensor& grad_weights_R) {
  if (!weights_R.defined()) return {};
  return {.weights = weights_R.const_data_ptr<float>(), .grad_weights = grad_weights_R.mutable_data_ptr<float>()};
}

// The results lie in the memory of the arguments.
ActivationGrads clamped_backward_kernel(const Tensor& grad_RF, const Tensor& hidden_R2F, const HiddenBias& bias,
                                        const Tensor& weights_R, const Tensor& grad_weights_R, double limit) {
  const int64_t rows = grad_RF.size(0), dim = grad_RF.size(1);
  launch(kernels::ClampedSwigluBackwardArgs{.type = element_type(grad_RF),
                                            .bias_type = element_type(grad_RF),
                                            .dproduct = grad_RF.const_data_ptr(),
                                            .fused = hidden_R2F.const_data_ptr(),
                                            .bias = memory_of(bias.bias_EH),
                                            .ends = bias.ends_E.const_data_ptr<int32_t>(),
                                            .dfused = hidden_R2F.mutable_data_ptr(),
                                            .product = grad_RF.mutable_data_ptr(),
                                            .dproduct_stride = dim,
                                            .fused_stride = 2 * dim,
                                            .dfused_stride = 2 * dim,
                                            .product_stride = dim,
                                            .rows = rows,
                                            .dim = dim,
                                            .num_experts = bias.ends_E.size(0),
                                            .limit = static_cast<float>(limit),
                                            .weights = row_weights(weights_R, grad_weights_R)});
  return {{hidden_R2F}, grad_RF, grad_weights_R};
}

ActivationGrads swiglu_backward_kernel(const Tensor& grad_RF, const Tensors& hidden, const Tensor& weights_R,
                                       const Tensor& grad_weights_R) {
  const int64_t rows = grad_RF.size(0), dim = grad_RF.size(1);
  launch(kernels::ExpertSwigluBackwardArgs{.type = element_type(grad_RF),
                                           .dproduct = grad_RF.const_data_ptr(),
                                           .gate = hidden[0].const_data_ptr(),
                                           .up = hidden[1].const_data_ptr(),
                                           .dgate = hidden[0].mutable_data_ptr(),
                                           .dup = hidden[1].mutable_data_ptr(),
                                           .product = grad_RF.mutable_data_ptr(),
                                           .dproduct_stride = dim,
                                           .gate_stride = dim,
                                           .up_stride = dim,
                                           .dgate_stride = dim,
                                           .dup_stride = dim,
                                           .product_stride = dim,
                                           .rows = rows,
                                           .dim = dim,
                                           .weights = row_weights(weights_R, grad_weights_R)});
  return {{hidden[0], hidden[1]}, grad_RF, grad_weights_R};
}

bool takes_float8_kernel(const Tensor& hidden_RF, const ActivationOptions& options) {
  return options.kind == ActivationKind::kSwiglu && hidden_RF.size(1) % 8 == 0 &&
         hidden_RF.size(1) <= kernels::kMostSwigluFloat8Columns;
}

struct RowsOutput {
  explicit RowsOutput(const Tensor& like_RF)
      : made{at::empty_like(like_RF, at::TensorOptions(kE4m3)),
             {},
             at::empty({like_RF.size(0), 1}, like_RF.options().dtype(at::kFloat))} {}
  kernels::Float8RowsOutput memory() const { return {made.data.data_ptr(), made.reciprocal.mutable_data_ptr<float>()}; }
  Float8Tensor made;
};

ExpertOperand swiglu_forward_float8(const Tensor& gate_RF, const Tensor& up_RF) {
  const RowsOutput product(gate_RF);
  launch(kernels::SwigluFloat8ForwardArgs{.gate = gate_RF.const_data_ptr(),
                                          .up = up_RF.const_data_ptr(),
                                          .rows = gate_RF.size(0),
                                          .dim = gate_RF.size(1),
                                          .product = product.memory()});
  return ExpertOperand::of_float8(product.made, {});
}

ActivationGrads swiglu_backward_float8(const Tensor& grad_RF, const Tensors& hidden, const Tensor& ends_E,
                                       const Tensor& weights_R, const Tensor& grad_weights_R) {
  const int64_t rows = grad_RF.size(0), dim = grad_RF.size(1), experts = ends_E.size(0);
  const RowsOutput dgate(grad_RF), dup(grad_RF);
  // Those of gate, up and the product lie one after the other.
  const ExpertLines all = make_expert_lines(3 * dim, rows, ends_E);
  const Tensor amax_3EF = at::zeros_like(all.reciprocals_EC);
  launch(kernels::SwigluFloat8BackwardArgs{.dproduct = grad_RF.const_data_ptr(),
                                           .gate = hidden[0].const_data_ptr(),
                                           .up = hidden[1].const_data_ptr(),
                                           .ends = ends_E.const_data_ptr<int32_t>(),
                                           .line_ends = all.ends_E.const_data_ptr<int32_t>(),
                                           .groups = experts,
                                           .rows = rows,
                                           .dim = dim,
                                           .weights = row_weights(weights_R, grad_weights_R),
                                           .dgate = dgate.memory(),
                                           .dup = dup.memory(),
                                           .lines = static_cast<uint8_t*>(all.data_CL.data_ptr()),
                                           .length = all.data_CL.size(1),
                                           .amax = amax_3EF.mutable_data_ptr<float>(),
                                           .reciprocals = all.reciprocals_EC.mutable_data_ptr<float>()});
  const Tensor reciprocals_3EF = all.reciprocals_EC.view({3, experts, dim});
  const auto lines = [&](int64_t i) {
    return ExpertLines{all.data_CL.narrow(0, i * dim, dim), reciprocals_3EF[i], all.ends_E};
  };
  return {{ExpertOperand::of_float8(dgate.made, lines(0)), ExpertOperand::of_float8(dup.made, lines(1))},
          ExpertOperand::of_float8({}, lines(2)),
          grad_weights_R};
}

ActivationGrads backward_kernel(const Tensor& grad_RF, const Tensors& hidden, const HiddenBias& bias,
                                const Tensor& weights_R, const ActivationOptions& options, bool in_float8) {
  const Tensor weights = weights_R.defined() ? weights_R.contiguous() : Tensor();
  const Tensor grad_weights_R = weights.defined() ? at::empty_like(weights) : Tensor();
  if (in_float8 && takes_float8_kernel(grad_RF, options)) {
    return swiglu_backward_float8(grad_RF.contiguous(), hidden, bias.ends_E, weights, grad_weights_R);
  }
  if (options.kind == ActivationKind::kSwiglu) return swiglu_backward_kernel(grad_RF, hidden, weights, grad_weights_R);
  return clamped_backward_kernel(grad_RF, hidden[0], bias, weights, grad_weights_R, options.limit);
}

}  // namespace

ExpertOperand expert_activation(const Tensors& hidden, const HiddenBias& bias, const ActivationOptions& options,
                                bool in_float8) {
  if (in_float8 && takes_float8_kernel(hidden[0], options)) return swiglu_forward_float8(hidden[0], hidden[1]);
  if (options.kind == ActivationKind::kSwiglu) return swiglu_forward(hidden[0], hidden[1]).product_TF;
  if (uses_kernels(hidden[0])) return clamped_forward_kernel(hidden[0], bias, options.limit);
  return clamped_forward(hidden[0], bias, options.limit);
}

ActivationGrads expert_activation_backward(Tensor grad_RF, Tensors hidden, const HiddenBias& bias,
                                           const Tensor& weights_R, const ActivationOptions& options, bool in_float8) {
  if (uses_kernels(grad_RF)) return backward_kernel(grad_RF, hidden, bias, weights_R, options, in_float8);
  const Dtype dtype = grad_RF.scalar_type();
  Tensor product_RF = expert_activation(hidden, bias, options, /*in_float8=*/false).tensor();
  Tensor grad_weights_R;
  if (weights_R.defined()) {
    grad_weights_R = (grad_RF.to(wide(grad_RF)) * product_RF).sum(1);
    const Tensor weights_R1 = weights_R.unsqueeze(1);
    product_RF = (product_RF * weights_R1).to(dtype);
    grad_RF = (grad_RF * weights_R1).to(dtype);
  }
  if (options.kind == ActivationKind::kClampedSwiglu) {
    return {{clamped_backward(grad_RF, hidden[0], bias, options.limit)}, product_RF, grad_weights_R};
  }
  SwigluGrads grads = swiglu_backward(std::move(grad_RF), hidden[0], hidden[1], {.product = false});
  return {{grads.gate_TF, grads.up_TF}, product_RF, grad_weights_R};
}

}  // namespace titanium::ops
