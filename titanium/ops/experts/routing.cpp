#include "titanium/ops/experts/routing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

constexpr double kTiny = 1e-20;  // as torchtitan adds it to the sum of weights

// The indices of the largest ones along the last dim; the lower index first among equals.
Tensor best(const Tensor& x, int64_t count) {
  const Tensor order = std::get<1>(at::sort(x, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  return order.narrow(-1, 0, count);
}

// Scores of experts outside the best groups become -infinity.
Tensor limit_to_groups(const Tensor& choice_TE, const RouterOptions& options) {
  const Tensor grouped_TGe = choice_TE.unflatten(1, {options.groups, -1});
  const Tensor group_TG = std::get<0>(at::topk(grouped_TGe, /*k=*/2, /*dim=*/-1)).sum(-1);
  const Tensor hidden_TG = at::zeros_like(group_TG).fill_(-std::numeric_limits<double>::infinity());
  hidden_TG.scatter_(1, best(group_TG, options.limited_groups), 0.0);
  return (grouped_TGe + hidden_TG.unsqueeze(-1)).flatten(1);
}

Tensor choose(const Tensor& scores_TE, const Tensor& bias_E, const RouterOptions& options) {
  const int64_t tokens = scores_TE.size(0), experts = scores_TE.size(1);
  if (options.force_balance) {
    const Tensor all = at::arange(tokens * options.top_k, scores_TE.options().dtype(at::kLong));
    return all.remainder(experts).view({tokens, options.top_k});
  }
  Tensor choice_TE = bias_E.defined() ? scores_TE + bias_E : scores_TE;
  if (options.groups > 0) choice_TE = limit_to_groups(choice_TE, options);
  return best(choice_TE, options.top_k);
}

bool takes_kernel(const Tensor& scores_TE, const RouterOptions& options) {
  return uses_kernels(scores_TE) && scores_TE.scalar_type() == at::kFloat &&
         scores_TE.size(1) <= kernels::kMostExperts && options.top_k <= kernels::kMostChoices &&
         options.groups <= kernels::kMostExpertGroups;
}

kernels::RouterScores kernel_scores(const RouterOptions& options) {
  return options.scores == ScoreFunction::kSoftmax ? kernels::RouterScores::kSoftmax : kernels::RouterScores::kSigmoid;
}

Routing route_kernel(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options) {
  const int64_t tokens = logits_TE.size(0);
  const Routing routing{at::empty({tokens, options.top_k}, logits_TE.options().dtype(at::kInt)),
                        at::empty({tokens, options.top_k}, logits_TE.options()), at::empty_like(logits_TE)};
  launch(kernels::RouteArgs{.function = kernel_scores(options),
                            .logits = logits_TE.const_data_ptr<float>(),
                            .bias = bias_E.defined() ? bias_E.const_data_ptr<float>() : nullptr,
                            .experts = routing.experts_TK.mutable_data_ptr<int32_t>(),
                            .weights = routing.weights_TK.mutable_data_ptr<float>(),
                            .scores = routing.scores_TE.mutable_data_ptr<float>(),
                            .tokens = tokens,
                            .num_experts = logits_TE.size(1),
                            .top_k = options.top_k,
                            .groups = options.groups,
                            .limited_groups = options.limited_groups,
                            .normalise = options.normalise,
                            .force_balance = options.force_balance,
                            .scale = static_cast<float>(options.scale)});
  return routing;
}

Tensor route_backward_kernel(const Tensor& grad_weights_TK, const Routing& routing, const RouterOptions& options,
                             const Tensor& grad_scores_TE) {
  const Tensor grad_TE = at::empty_like(routing.scores_TE);
  launch(kernels::RouteBackwardArgs{
      .function = kernel_scores(options),
      .grad_weights = grad_weights_TK.contiguous().const_data_ptr<float>(),
      .grad_scores = grad_scores_TE.defined() ? grad_scores_TE.const_data_ptr<float>() : nullptr,
      .experts = routing.experts_TK.const_data_ptr<int32_t>(),
      .scores = routing.scores_TE.const_data_ptr<float>(),
      .grad_logits = grad_TE.mutable_data_ptr<float>(),
      .tokens = routing.scores_TE.size(0),
      .num_experts = routing.scores_TE.size(1),
      .top_k = options.top_k,
      .normalise = options.normalise,
      .scale = static_cast<float>(options.scale)});
  return grad_TE;
}

}  // namespace

Routing route(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options) {
  if (takes_kernel(logits_TE, options)) return route_kernel(logits_TE, bias_E, options);
  const Tensor scores_TE =
      options.scores == ScoreFunction::kSoftmax ? at::softmax(logits_TE, 1) : at::sigmoid(logits_TE);
  const Tensor chosen_TK = choose(scores_TE, bias_E, options);
  Tensor weights_TK = scores_TE.gather(1, chosen_TK);
  if (options.normalise) weights_TK = weights_TK / (weights_TK.sum(1, /*keepdim=*/true) + kTiny);
  return {chosen_TK.to(at::kInt), weights_TK * options.scale, scores_TE};
}

Tensor route_backward(const Tensor& grad_weights_TK, const Routing& routing, const RouterOptions& options,
                      const Tensor& grad_scores_TE) {
  if (takes_kernel(routing.scores_TE, options))
    return route_backward_kernel(grad_weights_TK, routing, options, grad_scores_TE);
  const Tensor chosen_TK = routing.experts_TK.to(at::kLong);
  Tensor grad_TK = grad_weights_TK * options.scale;
  if (options.normalise) {
    const Tensor chosen_scores_TK = routing.scores_TE.gather(1, chosen_TK);
    const Tensor sum_T1 = chosen_scores_TK.sum(1, /*keepdim=*/true) + kTiny;
    const Tensor mean_T1 = (grad_TK * chosen_scores_TK).sum(1, /*keepdim=*/true) / sum_T1;
    grad_TK = (grad_TK - mean_T1) / sum_T1;
  }
  const Tensor& p = routing.scores_TE;
  Tensor grad_TE = at::zeros_like(p).scatter_add_(1, chosen_TK, grad_TK);
  if (grad_scores_TE.defined()) grad_TE = grad_TE + grad_scores_TE;
  if (options.scores == ScoreFunction::kSigmoid) return grad_TE * p * (1 - p);
  return p * (grad_TE - (grad_TE * p).sum(1, /*keepdim=*/true));
}

}  // namespace titanium::ops
