#include "titanium/ops/experts/mixture_of_experts.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "titanium/ops/experts/dispatch.h"
#include "titanium/ops/experts/grouped_float8.h"
#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/linear/multiply.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/swiglu.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

// One run of the layer: what the backward gets from the forward.
struct Run {
  Tensor h_tD, rstd_t1;
  Tensor n_amax;  // of what was normalised, where shared experts want it
  Routing routing;
  Dispatch dispatch;  // of the choices of tokens here, over all experts
  RowPlan plan;
  Dispatch order;  // of the rows that have come, by experts here; with one rank as `dispatch`
  // Undefined where they are made once more.
  ExpertOperand x_LD;
  Tensors hidden, shared_hidden;
};

bool sends(const MixtureOfExpertsArgs& args) { return args.exchange.ranks() > 1; }

// Rows in the order of all experts -> rows of the experts here in their order; and the way back.
Tensor to_experts(const Tensor& rows, const Run& run, const MixtureOfExpertsArgs& args) {
  if (!sends(args)) return rows;
  return take_rows(args.exchange.send(rows, run.plan)(), run.order.choice_of_row_R);
}
Pending to_tokens(const Tensor& rows, const Run& run, const MixtureOfExpertsArgs& args) {
  return args.exchange.send_back(sends(args) ? take_rows(rows, run.order.row_of_choice_R) : rows, run.plan);
}

Dtype score_dtype(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

Routing decide(const Tensor& tokens_TD, const MixtureOfExpertsArgs& args) {
  if (args.kept_routing && args.kept_routing->routing) return *args.kept_routing->routing;
  const Dtype dtype = score_dtype(tokens_TD);
  const Tensor logits_TE = at::empty({tokens_TD.size(0), args.gate.rows()}, tokens_TD.options().dtype(dtype));
  multiply(logits_TE, tokens_TD, args.gate.in(tokens_TD.scalar_type()).t());
  if (args.gate_bias != nullptr) logits_TE.add_(args.gate_bias->in(dtype));
  Routing routing = route(logits_TE, args.balance_E, args.router);
  if (args.losses.z > 0) routing.logits_TE = logits_TE;
  if (args.kept_routing) args.kept_routing->routing = routing;
  return routing;
}

ExpertOperand rows_for_experts(const Tensor& tokens_TD, const Run& run, const MixtureOfExpertsArgs& args) {
  if (!sends(args) && !args.weighs_inputs) return {tokens_TD, run.dispatch};
  const Tensor weights_TK = args.weighs_inputs ? run.routing.weights_TK : Tensor();
  return to_experts(gather_rows(tokens_TD, run.dispatch, weights_TK), run, args);
}
ExpertOperand grads_for_experts(const Tensor& grad_TD, const Run& run, const MixtureOfExpertsArgs& args) {
  if (!sends(args)) return {grad_TD, run.dispatch};
  return to_experts(gather_rows(grad_TD, run.dispatch), run, args);
}

// What the first products of experts give, and the product of SwiGLU where it comes along.
struct Hidden {
  Tensors parts;
  Tensor product_LF;
};
Hidden hidden_of(const ExpertOperand& x_LD, const Run& run, const ExpertWeights& experts) {
  const Tensor& ends_L = run.order.ends_E;
  if (experts.activation.kind == ActivationKind::kSwiglu) {
    const GatedRows rows = grouped_gated_forward(x_LD, *experts.hidden[0], *experts.hidden[1], ends_L);
    return {{rows.gate_RO, rows.up_RO}, rows.product_RO};
  }
  return {{grouped_forward(x_LD, *experts.hidden[0], ends_L)}, Tensor()};
}

HiddenBias hidden_bias(const Tensors& hidden, const Run& run, const ExpertWeights& experts) {
  if (experts.hidden_bias == nullptr) return {Tensor(), run.order.ends_E};
  return {experts.hidden_bias->in(hidden[0].scalar_type()), run.order.ends_E};
}

// Whether what lies between the products of experts goes into products of float8 on tensor cores alone.
bool is_for_float8(const Tensors& hidden, const ExpertWeights& experts) {
  return std::ranges::all_of(experts.hidden,
                             [&](const Parameter* weight) { return multiplies_float8_experts(hidden[0], *weight); }) &&
         multiplies_float8_experts(hidden[0], *experts.down);
}

// Whether this rank adds the bias: where an expert is cut over ranks, only the first of them does.
bool adds_down_bias(const ExpertWeights& experts) {
  return experts.down_bias != nullptr && experts.down->part.offset[2] == 0;
}

// Where all experts are here, their biases are added when rows are combined, and not to the rows.
bool combines_bias(const MixtureOfExpertsArgs& args) { return adds_down_bias(args.experts) && !sends(args); }

// What comes out of the experts for each choice of the tokens here, perhaps without biases.
Tensor run_experts(const Tensor& tokens_TD, const MixtureOfExpertsArgs& args, Run& run) {
  run.x_LD = rows_for_experts(tokens_TD, run, args);
  Hidden hidden = hidden_of(run.x_LD, run, args.experts);
  run.hidden = std::move(hidden.parts);
  const ExpertOperand product_LF =
      hidden.product_LF.defined() ? hidden.product_LF
                                  : expert_activation(run.hidden, hidden_bias(run.hidden, run, args.experts),
                                                      args.experts.activation, is_for_float8(run.hidden, args.experts));
  const Tensor out_LD = grouped_forward(product_LF, *args.experts.down, run.order.ends_E);
  if (adds_down_bias(args.experts) && sends(args)) add_expert_bias(out_LD, *args.experts.down_bias, run.order.ends_E);
  return to_tokens(out_LD, run, args)();
}

Tensors shared_hidden_of(const LinearInput& x_TD, const SharedExperts& shared) {
  return {linear_forward(x_TD, shared.w1), linear_forward(x_TD, shared.w3)};
}

// h + shared(n), this rank's rows; or, where experts are cut too, this rank's part of shared(n) for all rows, undefined
// if there are none.
Tensor run_shared(const Tensor& tokens_TD, const Tensor& n_tD, const MixtureOfExpertsArgs& args, Run& run) {
  if (!args.shared) return args.cuts_experts ? Tensor() : run.h_tD;
  const Tensor x_TD = args.cuts_experts ? tokens_TD : args.rows.gather(n_tD)();
  run.shared_hidden = shared_hidden_of({x_TD, run.n_amax}, *args.shared);
  const SwigluOutput activated =
      swiglu_forward(run.shared_hidden[0], run.shared_hidden[1], wants_amax(args.shared->w2, args.rows));
  const LinearInput product_TF(activated.product_TF, activated.amax);
  if (args.cuts_experts) return linear_forward(product_TF, args.shared->w2);
  return linear_residual_forward(product_TF, args.shared->w2, run.h_tD, args.rows);
}

Tensor forward(const MixtureOfExpertsArgs& args, bool counts, Run& run) {
  const RmsNormOutput normalised =
      rms_norm_forward(run.h_tD, args.norm, args.eps, args.shared && wants_amax(args.shared->w1, args.rows));
  run.rstd_t1 = normalised.rstd_T1;
  run.n_amax = normalised.amax;
  const Tensor tokens_TD = args.cuts_experts ? args.rows.gather(normalised.y_TD)() : normalised.y_TD;
  run.routing = decide(tokens_TD, args);
  run.dispatch = sort_by_expert(run.routing.experts_TK, args.gate.rows());
  const Tensor counts_E = run.dispatch.counts();
  if (counts) args.load_E.add_(counts_E);
  const PendingPlan plan = args.exchange.plan(counts_E);
  const Tensor added = run_shared(tokens_TD, normalised.y_TD, args, run);  // while the plan is on its way
  run.plan = plan();
  run.order = sends(args) ? order_parts(run.plan.counts_nL, run.plan.received) : run.dispatch;
  const Tensor out_RD = run_experts(tokens_TD, args, run);
  Combination with{.weights_TK = args.weighs_inputs ? Tensor() : run.routing.weights_TK, .added_TD = added};
  if (combines_bias(args)) {
    with.bias_ED = args.experts.down_bias->in(out_RD.scalar_type());
    with.experts_TK = run.routing.experts_TK;
  }
  const Tensor sum_TD = combine_rows(out_RD, run.dispatch, args.router.top_k, with);
  return args.cuts_experts ? args.rows.reduce_scatter(sum_TD)() + run.h_tD : sum_TD;
}

// <a, b> of each row.
Tensor row_products(const Tensor& a, const Tensor& b) { return (a.to(score_dtype(a)) * b).sum(1); }

// The gradients of the experts' weights, and those of what went into them: rows for experts, and weights of choices.
struct ExpertGrads {
  Tensor x_RD, more_x_RD;  // in the order of all experts; the second, if defined, is to be added
  Tensor weights_R1;       // undefined where the weights went into the experts with x
};
ExpertGrads experts_backward(const Tensor& grad_TD, const Tensor& tokens_TD, const MixtureOfExpertsArgs& args,
                             const Run& run) {
  const ExpertWeights& experts = args.experts;
  const Tensor& ends_L = run.order.ends_E;
  const ExpertOperand grad_LD = grads_for_experts(grad_TD, run, args);
  const ExpertOperand x_LD = run.x_LD.is_empty() ? rows_for_experts(tokens_TD, run, args) : run.x_LD;
  Tensors hidden = run.hidden.empty() ? hidden_of(x_LD, run, experts).parts : run.hidden;
  Tensor weights_L;
  if (!args.weighs_inputs) {
    const Tensor weights_R1 = take_rows(run.routing.weights_TK.reshape({-1, 1}), run.dispatch.choice_of_row_R);
    weights_L = to_experts(weights_R1, run, args).squeeze(1);
  }
  const HiddenBias bias = hidden_bias(hidden, run, experts);
  const bool in_float8 = is_for_float8(hidden, experts);
  ActivationGrads grads = expert_activation_backward(grouped_input_grad(grad_LD, *experts.down, ends_L),
                                                     std::move(hidden), bias, weights_L, experts.activation, in_float8);
  accumulate_grouped_weight_grad(grad_LD, grads.weighted_product_RF, *experts.down, ends_L);
  if (experts.down_bias != nullptr) {
    accumulate_expert_bias_grad(grad_LD.tensor(), *experts.down_bias, ends_L, weights_L);
    if (adds_down_bias(experts) && sends(args) && weights_L.defined()) {
      const Tensor bias_LD =
          experts.down_bias->in(score_dtype(grad_TD)).index_select(0, expert_of_row(ends_L, grad_LD.count()));
      grads.weights_R = grads.weights_R + row_products(grad_LD.tensor(), bias_LD);
    }
  }
  if (experts.hidden_bias != nullptr)
    accumulate_expert_bias_grad(grads.hidden[0].tensor(), *experts.hidden_bias, ends_L);
  // Gradients of two first products may be added when rows are combined, unless they have to travel.
  const Tensors grad_x = grouped_input_grads(grads.hidden, experts.hidden, ends_L, /*as_one=*/sends(args));
  // On its way; meanwhile the weights.
  const Pending grad_x_RD = to_tokens(grad_x[0], run, args);
  for (size_t i = 0; i < experts.hidden.size(); ++i) {
    accumulate_grouped_weight_grad(grads.hidden[i], x_LD, *experts.hidden[i], ends_L);
  }
  return {grad_x_RD(), grad_x.size() > 1 ? grad_x[1] : Tensor(),
          weights_L.defined() ? to_tokens(grads.weights_R.unsqueeze(1), run, args)() : Tensor()};
}

// The gradient of the weight of each choice through the bias of its expert.
Tensor bias_products(const Tensor& grad_TD, const MixtureOfExpertsArgs& args, const Run& run) {
  const Tensor bias_ED = args.experts.down_bias->in(grad_TD.scalar_type());
  const Tensor products_TE =
      at::empty({grad_TD.size(0), bias_ED.size(0)}, grad_TD.options().dtype(score_dtype(grad_TD)));
  multiply(products_TE, grad_TD, bias_ED.t());
  return products_TE.gather(1, run.routing.experts_TK.to(at::kLong));
}

// The gradient of the tokens through the experts and the router.
Tensor routed_backward(const Tensor& grad_TD, const Tensor& tokens_TD, const MixtureOfExpertsArgs& args,
                       const Run& run) {
  ExpertGrads grads = experts_backward(grad_TD, tokens_TD, args, run);
  const Tensor grad_tokens_TD =
      combine_rows(grads.x_RD, run.dispatch, args.router.top_k,
                   {.weights_TK = args.weighs_inputs ? run.routing.weights_TK : Tensor(), .more_RD = grads.more_x_RD});
  if (args.weighs_inputs) {
    const Tensor rows_RD = gather_rows(tokens_TD, run.dispatch);
    grads.weights_R1 = row_products(grads.x_RD, rows_RD).unsqueeze(1);
    if (grads.more_x_RD.defined()) grads.weights_R1 += row_products(grads.more_x_RD, rows_RD).unsqueeze(1);
  }
  Tensor grad_weights_TK = take_rows(grads.weights_R1, run.dispatch.row_of_choice_R).view({-1, args.router.top_k});
  if (combines_bias(args) && !args.weighs_inputs) grad_weights_TK = grad_weights_TK + bias_products(grad_TD, args, run);
  RouterLosses losses = args.losses;
  if (args.cuts_experts) {  // all ranks route the same rows, and their gradients are summed
    losses.balance /= static_cast<double>(args.rows.ranks());
    losses.z /= static_cast<double>(args.rows.ranks());
  }
  const RouterLossGrads of_losses = router_loss_grads(run.routing, losses);
  Tensor grad_logits_TE = route_backward(grad_weights_TK, run.routing, args.router, of_losses.scores_TE);
  if (of_losses.logits_TE.defined()) grad_logits_TE = grad_logits_TE + of_losses.logits_TE;
  if (args.gate_bias != nullptr) args.gate_bias->accumulate(grad_logits_TE.sum(0));
  const LinearGrad grad_gate_TE(grad_logits_TE.to(tokens_TD.scalar_type()));
  accumulate_weight_grad(grad_gate_TE, tokens_TD, args.gate);
  add_input_grad(grad_tokens_TD, grad_gate_TE, args.gate);
  return grad_tokens_TD;
}

// This rank's part of the gradient of n through the shared experts, for all rows.
Tensor shared_backward(const Tensor& grad_TD, const Tensor& x_TD, const MixtureOfExpertsArgs& args, const Run& run) {
  const SharedExperts& shared = *args.shared;
  const LinearInput input_TD(x_TD, run.n_amax);
  const LinearGrad out_grad_TD(grad_TD);
  Tensors hidden = run.shared_hidden.empty() ? shared_hidden_of(input_TD, shared) : run.shared_hidden;
  SwigluGrads grads = swiglu_backward(linear_input_grad(out_grad_TD, shared.w2), hidden[0], hidden[1],
                                      {.amax = wants_amax(shared.w1, args.rows)});
  accumulate_weight_grad(out_grad_TD, grads.product_TF, shared.w2);
  const LinearGrad grad_gate(grads.gate_TF, grads.gate_amax), grad_up(grads.up_TF, grads.up_amax);
  const Tensor grad_x_TD = linear_input_grad(grad_gate, shared.w1);
  add_input_grad(grad_x_TD, grad_up, shared.w3);
  accumulate_weight_grad(grad_gate, input_TD, shared.w1);
  accumulate_weight_grad(grad_up, input_TD, shared.w3);
  return grad_x_TD;
}

Tensor backward(const Tensor& grad_tD, const MixtureOfExpertsArgs& args, const Run& run) {
  const Tensor n_tD = rms_norm_apply(run.h_tD, run.rstd_t1, args.norm);
  const bool needs_all_rows = args.cuts_experts || args.shared;
  const Tensor n_TD = needs_all_rows ? args.rows.gather(n_tD)() : n_tD;
  const Tensor grad_TD = needs_all_rows ? args.rows.gather(grad_tD)() : grad_tD;
  const Tensor shared_TD = args.shared ? shared_backward(grad_TD, n_TD, args, run) : Tensor();
  Tensor grad_n_tD;
  if (args.cuts_experts) {
    Tensor partial_TD = routed_backward(grad_TD, n_TD, args, run);
    if (shared_TD.defined()) partial_TD.add_(shared_TD);
    grad_n_tD = args.rows.reduce_scatter(partial_TD)();
  } else {
    const Pending shared_tD = shared_TD.defined() ? args.rows.reduce_scatter(shared_TD) : Pending();
    grad_n_tD = routed_backward(grad_tD, n_tD, args, run);
    if (shared_tD) grad_n_tD.add_(shared_tD());
  }
  return rms_norm_backward(grad_n_tD, run.h_tD, run.rstd_t1, args.norm, /*around_TD=*/grad_tD);
}

}  // namespace

Tensor mixture_of_experts(const Tensor& h_tD, const MixtureOfExpertsArgs& args, ExpertSaves saves) {
  const TraceScope scope("mixture_of_experts");
  Run run;
  run.h_tD = h_tD.detach();
  Tensor y_tD;
  {
    const bool counts = needs_grad({h_tD}) && args.load_E.defined();
    const c10::AutoGradMode no_grad(false);
    y_tD = forward(args, counts, run);
  }
  const bool keeps_rows = saves == ExpertSaves::kRows || (saves == ExpertSaves::kHidden && sends(args));
  run.x_LD = keeps_rows ? run.x_LD.rows_in_memory() : ExpertOperand();
  if (saves == ExpertSaves::kNothing) run.hidden = run.shared_hidden = {};
  record({h_tD}, {y_tD}, [args, run = std::move(run)](const Tensors& grads) -> Tensors {
    return {backward(grads[0].contiguous(), args, run)};
  });
  return y_tD;
}

}  // namespace titanium::ops
