#include "titanium/ops/feed_forward.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "titanium/ops/linear.h"
#include "titanium/ops/rms_norm.h"

namespace titanium::ops {
namespace {

struct GateUp {
  Tensor gate_TF;
  Tensor up_TF;
};

GateUp project(const Tensor& normalised_TD, const FeedForwardArgs& args) {
  return {linear_forward(normalised_TD, args.w1), linear_forward(normalised_TD, args.w3)};
}

Tensor backward(const Tensor& grad_TD, const Tensor& h_TD, const Tensor& rstd_T1, const GateUp& kept,
                const FeedForwardArgs& args) {
  const Tensor normalised_TD = rms_norm_apply(h_TD, rstd_T1, args.norm);
  const GateUp hidden = kept.gate_TF.defined() ? kept : project(normalised_TD, args);
  const Tensor silu_TF = at::silu(hidden.gate_TF);
  accumulate_weight_grad(grad_TD, at::mul(silu_TF, hidden.up_TF), args.w2);
  const Tensor grad_product_TF = linear_input_grad(grad_TD, args.w2);
  const Tensor grad_up_TF = at::mul(grad_product_TF, silu_TF);
  const Tensor grad_gate_TF = at::silu_backward(at::mul(grad_product_TF, hidden.up_TF), hidden.gate_TF);
  accumulate_weight_grad(grad_gate_TF, normalised_TD, args.w1);
  accumulate_weight_grad(grad_up_TF, normalised_TD, args.w3);
  Tensor grad_normalised_TD = linear_input_grad(grad_gate_TF, args.w1);
  add_input_grad(grad_normalised_TD, grad_up_TF, args.w3);
  return rms_norm_backward(grad_normalised_TD, h_TD, rstd_T1, args.norm).add_(grad_TD);
}

}  // namespace

Tensor feed_forward(const Tensor& h_TD, const FeedForwardArgs& args, FeedForwardSaves saves) {
  Tensor y_TD, rstd_T1;
  GateUp hidden;
  {
    const c10::AutoGradMode no_grad(false);
    const RmsNormOutput normalised = rms_norm_forward(h_TD, args.norm, args.eps);
    rstd_T1 = normalised.rstd_T1;
    hidden = project(normalised.y_TD, args);
    const Tensor product_TF = at::silu(hidden.gate_TF).mul_(hidden.up_TF);
    y_TD = at::addmm(h_TD, product_TF, args.w2.in(h_TD.scalar_type()).t());
  }
  if (saves == FeedForwardSaves::kNothing) hidden = {};
  record({h_TD}, {y_TD}, [h_TD = h_TD.detach(), rstd_T1, hidden, args](const Tensors& grads) -> Tensors {
    return {backward(grads[0], h_TD, rstd_T1, hidden, args)};
  });
  return y_TD;
}

}  // namespace titanium::ops
