#include "titanium/ops/feed_forward.h"

#include "titanium/ops/linear.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/swiglu.h"

namespace titanium::ops {
namespace {

struct GateUp {
  Tensor gate_TF;
  Tensor up_TF;
};

Tensors project(const Tensors& normalised, const FeedForwardArgs& args) {
  return {linear_forward(normalised[0], args.w1), linear_forward(normalised[0], args.w3)};
}

GateUp gate_and_up(const Tensors& projected) { return {projected[0], projected[1]}; }

Tensor backward(const Tensor& grad_tD, const Tensor& h_tD, const Tensor& rstd_t1, const GateUp& kept,
                const FeedForwardArgs& args) {
  const Pending normalised = args.exchange.gather(rms_norm_apply(h_tD, rstd_t1, args.norm));
  const auto through_w2 = [&](const Tensors& rows) -> Tensors { return {linear_input_grad(rows[0], args.w2)}; };
  Tensor grad_TD;
  Tensor grad_product_TF = map_gathered(args.exchange, grad_tD, through_w2, &grad_TD)[0];
  const Tensor normalised_TD = normalised();
  const GateUp hidden = kept.gate_TF.defined() ? kept : gate_and_up(project({normalised_TD}, args));
  // What was kept is used here for the last time, so the gradients may take its memory.
  SwigluGrads grads = swiglu_backward(std::move(grad_product_TF), hidden.gate_TF, hidden.up_TF);
  accumulate_weight_grad(grad_TD, std::exchange(grads.product_TF, Tensor()), args.w2);
  const auto input_grad = [&](const Tensors& rows) {
    Tensor grad_normalised_TD = linear_input_grad(rows[0], args.w1);
    add_input_grad(grad_normalised_TD, rows[1], args.w3);
    return grad_normalised_TD;
  };
  const Pending grad_normalised_tD = scatter_mapped(args.exchange, {grads.gate_TF, grads.up_TF}, input_grad);
  // On its way; meanwhile the weights.
  accumulate_weight_grad(grads.gate_TF, normalised_TD, args.w1);
  accumulate_weight_grad(grads.up_TF, normalised_TD, args.w3);
  return rms_norm_backward(grad_normalised_tD(), h_tD, rstd_t1, args.norm, grad_tD);
}

}  // namespace

Tensor feed_forward(const Tensor& h_tD, const FeedForwardArgs& args, FeedForwardSaves saves) {
  Tensor y_tD, rstd_t1;
  GateUp hidden;
  {
    const c10::AutoGradMode no_grad(false);
    const RmsNormOutput normalised = rms_norm_forward(h_tD, args.norm, args.eps);
    rstd_t1 = normalised.rstd_T1;
    hidden = gate_and_up(
        map_gathered(args.exchange, normalised.y_TD, [&](const Tensors& rows) { return project(rows, args); }));
    const Tensor product_TF = swiglu_forward(hidden.gate_TF, hidden.up_TF);
    y_tD = linear_residual_forward(product_TF, args.w2, h_tD, args.exchange);
  }
  if (saves == FeedForwardSaves::kNothing) hidden = {};
  record({h_tD}, {y_tD}, [h_tD = h_tD.detach(), rstd_t1, hidden, args](const Tensors& grads) -> Tensors {
    return {backward(grads[0].contiguous(), h_tD, rstd_t1, hidden, args)};
  });
  return y_tD;
}

}  // namespace titanium::ops
