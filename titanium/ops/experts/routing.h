// Which experts a token goes to, and with which weights. T tokens, E experts, K of them chosen.
#pragma once

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

enum class ScoreFunction { kSoftmax, kSigmoid };

struct RouterOptions {
  ScoreFunction scores = ScoreFunction::kSoftmax;
  int64_t top_k = 1;
  bool normalise = false;  // the weights of a token's choices add up to `scale`
  double scale = 1;
  // Group-limited selection: only experts of the best `limited_groups` groups may be chosen. A group is as good as the
  // sum of its two best experts. 0: no groups.
  int64_t groups = 0;
  int64_t limited_groups = 0;
  bool force_balance = false;  // choice i of all goes to expert i mod E, for benchmarks
};

struct Routing {
  Tensor experts_TK;      // int32, best first
  Tensor weights_TK;      // fp32 (fp64 for fp64), normalised and scaled
  Tensor scores_TE;       // of all experts
  Tensor logits_TE = {};  // undefined unless a loss will ask for them
};

// Chooses by score + bias, which may be undefined; weights are made of the scores alone. Among equals the lower expert
// comes first. Logits are fp32 (or fp64).
Routing route(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options);

// The gradient of the logits, from that of the weights and, if defined, another one of the scores.
Tensor route_backward(const Tensor& grad_weights_TK, const Routing& routing, const RouterOptions& options,
                      const Tensor& grad_scores_TE = {});

}  // namespace titanium::ops
