// Losses of a router beside that of the model. They have no value of their own in the report; their gradients join that
// of the router's scores.
#pragma once

#include <functional>

#include "titanium/ops/experts/routing.h"

namespace titanium::ops {

// Note [Losses of a router]
// The balance loss of a sequence is the sum over experts of f * P, with f = E / (K S) times the choices of the expert
// by the S tokens of the sequence, which counts as a constant, and P = the mean of its share of a token's scores
// (DeepSeek V3). The loss of a step is the mean over its sequences, times a factor. A sequence may be spread over
// ranks: then its choices are summed over them.
//
// The z loss is the mean over the tokens of a step of the square of the log-sum-exp of the logits, times a factor.
struct RouterLosses {
  double balance = 0;          // the factor over the number of sequences of a step, of all ranks
  double z = 0;                // the factor over the number of their tokens
  int64_t seq_len = 0;         // of a sequence, as the rows of all ranks of tensor parallelism have it: S, or its share
  int64_t sequence_ranks = 1;  // that have a share of each sequence
  int64_t first_row = 0;       // of the rows that this rank routes among those of all ranks of tensor parallelism
  int64_t all_rows = 0;        // of these
  // Sums [sequences, E] over the ranks that have other tokens of the same sequences, in place; null: there are none.
  std::function<void(const Tensor&)> sum_over_sequences;

  bool any() const { return balance > 0 || z > 0; }
};

// The gradients of both losses: that of the scores, undefined without a balance, and that of the logits, undefined
// without z. The routing has kept its logits.
struct RouterLossGrads {
  Tensor scores_TE;
  Tensor logits_TE;
};
RouterLossGrads router_loss_grads(const Routing& routing, const RouterLosses& losses);

}  // namespace titanium::ops
