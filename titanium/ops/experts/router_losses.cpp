#include "titanium/ops/experts/router_losses.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

namespace titanium::ops {
namespace {

// The choices of each expert by the tokens of each sequence, on all ranks, [sequences, E].
Tensor choices_of_sequences(const Routing& routing, const RouterLosses& losses, const Tensor& sequence_T) {
  const int64_t experts = routing.scores_TE.size(1);
  const Tensor chosen_TK = routing.experts_TK.to(at::kLong) + (sequence_T * experts).unsqueeze(1);
  const Tensor counts =
      at::zeros({losses.all_rows / losses.seq_len * experts}, routing.scores_TE.options())
          .scatter_add_(0, chosen_TK.flatten(),
                        at::ones_like(routing.scores_TE).narrow(1, 0, 1).expand_as(chosen_TK).flatten());
  const Tensor counts_BE = counts.view({-1, experts});
  if (losses.sum_over_sequences) losses.sum_over_sequences(counts_BE);
  return counts_BE;
}

Tensor balance_grad(const Routing& routing, const RouterLosses& losses) {
  const Tensor& scores_TE = routing.scores_TE;
  const int64_t tokens = scores_TE.size(0);
  const auto length = static_cast<double>(losses.seq_len * losses.sequence_ranks);
  const Tensor rows_T = at::arange(tokens, scores_TE.options().dtype(at::kLong)) + losses.first_row;
  const Tensor sequence_T = rows_T.div(losses.seq_len, "floor");
  const double per_choice =
      static_cast<double>(scores_TE.size(1)) / (static_cast<double>(routing.experts_TK.size(1)) * length);
  const Tensor f_TE = choices_of_sequences(routing, losses, sequence_T).index_select(0, sequence_T) * per_choice;
  const Tensor sum_T1 = scores_TE.sum(1, /*keepdim=*/true);
  const Tensor mean_T1 = (f_TE * scores_TE).sum(1, /*keepdim=*/true) / sum_T1;
  return (f_TE - mean_T1) / sum_T1 * (losses.balance / length);
}

Tensor z_grad(const Tensor& logits_TE, double factor) {
  const Tensor lse_T1 = at::logsumexp(logits_TE, 1, /*keepdim=*/true);
  return (logits_TE - lse_T1).exp_() * lse_T1 * (2 * factor);
}

}  // namespace

RouterLossGrads router_loss_grads(const Routing& routing, const RouterLosses& losses) {
  return {losses.balance > 0 ? balance_grad(routing, losses) : Tensor(),
          losses.z > 0 ? z_grad(routing.logits_TE, losses.z) : Tensor()};
}

}  // namespace titanium::ops
