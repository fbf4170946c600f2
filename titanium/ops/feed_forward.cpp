#include "titanium/ops/feed_forward.h"

#include <c10/core/GradMode.h>

#include "titanium/ops/linear/float8.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/normalised_rows.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/swiglu.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

// What the backward gets from the forward; nothing where it is computed once more.
struct Kept {
  Tensor x_amax;  // of what was normalised
  Tensor gate_TF;
  Tensor up_TF;
  LinearInput product = Tensor();  // in float8
};

Tensors project(const LinearInput& normalised, const FeedForwardArgs& args) {
  return {linear_forward(normalised, args.w1), linear_forward(normalised, args.w3)};
}

Tensor backward(const LinearGrad& grad_tD, const Tensor& h_tD, const Tensor& rstd_t1, const Kept& kept,
                const FeedForwardArgs& args) {
  const bool projects = !kept.gate_TF.defined();
  NormalisedRows normalised(
      {h_tD, rstd_t1, kept.x_amax, args.norm, args.exchange, {&args.w1, &args.w3}, /*needs_all=*/projects});
  const auto through_w2 = [&](const Tensors& rows) -> Tensors {
    return {linear_input_grad(grad_tD.of(rows[0]), args.w2)};
  };
  Tensor grad_TD;
  Tensor grad_product_TF = map_gathered(args.exchange, grad_tD.tensor(), through_w2, &grad_TD)[0];
  const Tensors hidden = projects ? project(normalised.all(), args) : Tensors{kept.gate_TF, kept.up_TF};
  // What was kept is used here for the last time, so the gradients may take its memory.
  SwigluGrads grads = swiglu_backward(std::move(grad_product_TF), hidden[0], hidden[1],
                                      {.product = kept.product.is_empty(), .amax = wants_amax(args.w1, args.exchange)});
  accumulate_weight_grad(grad_tD.of(grad_TD), kept.product.is_empty() ? LinearInput(grads.product_TF) : kept.product,
                         args.w2);
  grads.product_TF = Tensor();
  const LinearGrad grad_gate(grads.gate_TF, grads.gate_amax), grad_up(grads.up_TF, grads.up_amax);
  const auto input_grad = [&](const Tensors& rows) {
    const Tensor grad_normalised_TD = linear_input_grad(grad_gate.of(rows[0]), args.w1);
    add_input_grad(grad_normalised_TD, grad_up.of(rows[1]), args.w3);
    return grad_normalised_TD;
  };
  const Pending grad_normalised_tD = scatter_mapped(args.exchange, {grads.gate_TF, grads.up_TF}, input_grad);
  return normalised.backward(grad_normalised_tD, /*around_tD=*/grad_tD.tensor(), [&](const LinearInput& x_TD) {
    accumulate_weight_grad(grad_gate, x_TD, args.w1);
    accumulate_weight_grad(grad_up, x_TD, args.w3);
  });
}

}  // namespace

Tensor feed_forward(const Tensor& h_tD, const FeedForwardArgs& args, FeedForwardSaves saves) {
  const TraceScope scope("feed_forward");
  Tensor y_tD, rstd_t1;
  Kept kept;
  const bool keeps_product = saves == FeedForwardSaves::kEverything && needs_grad({h_tD}) &&
                             multiplies_float8(h_tD, args.w2) && has_float8_weight_grad(args.w2);
  {
    const c10::AutoGradMode no_grad(false);
    const RmsNormOutput normalised = rms_norm_forward(h_tD, args.norm, args.eps, wants_amax(args.w1, args.exchange));
    rstd_t1 = normalised.rstd_T1;
    kept.x_amax = normalised.amax;
    const LinearInput x_tD(normalised.y_TD, normalised.amax);
    const Tensors hidden = map_gathered(args.exchange, normalised.y_TD,
                                        [&](const Tensors& rows) { return project(x_tD.of(rows[0]), args); });
    SwigluOutput activated = swiglu_forward(hidden[0], hidden[1], wants_amax(args.w2, args.exchange));
    LinearInput product_TF(std::move(activated.product_TF), activated.amax);
    if (keeps_product) {
      product_TF.rows_and_columns(*args.w2.float8);
      kept.product = product_TF;
    }
    y_tD = linear_residual_forward(product_TF, args.w2, h_tD, args.exchange);
    if (!kept.product.is_empty()) kept.product.keep_columns_only();
    if (saves != FeedForwardSaves::kNothing) kept.gate_TF = hidden[0], kept.up_TF = hidden[1];
  }
  record({h_tD}, {y_tD}, [h_tD = h_tD.detach(), rstd_t1, kept, args](const Tensors& grads) -> Tensors {
    return {backward(grads[0].contiguous(), h_tD, rstd_t1, kept, args)};
  });
  return y_tD;
}

}  // namespace titanium::ops
