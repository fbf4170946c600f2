// The feed-forward half of a block with experts as one node:
//   h + shared(n) + the sum over a token's choices of weight * expert(n), with n = rms_norm(h).
// T tokens, t this rank's rows of them, D columns, E experts, L of them here, K choices, F hidden columns of an expert.
#pragma once

#include <optional>

#include "titanium/ops/experts/expert_activation.h"
#include "titanium/ops/experts/expert_exchange.h"
#include "titanium/ops/experts/router_losses.h"
#include "titanium/ops/row_exchange.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

struct ExpertWeights {
  std::vector<Parameter*> hidden;    // as ActivationKind wants them: [E, F, D] each of two, or one [E, 2F, D]
  Parameter* hidden_bias = nullptr;  // [E, 2F], beside one hidden weight
  Parameter* down = nullptr;         // [E, D, F]
  Parameter* down_bias = nullptr;    // [E, D]
  ActivationOptions activation;
};

struct SharedExperts {
  Parameter& w1;
  Parameter& w2;
  Parameter& w3;
};

// Routing that outlives a recomputation: the first run decides, the second one takes what was decided. Computed once
// more, a tie might fall the other way.
struct KeptRouting {
  std::optional<Routing> routing;
};

struct MixtureOfExpertsArgs {
  Parameter& norm;
  double eps;
  Parameter& gate;                 // [E, D]
  Parameter* gate_bias = nullptr;  // [E]
  Tensor balance_E = {};           // fp32, added to the scores for the choice; or undefined
  Tensor load_E = {};              // int64, raised by the choices of tokens in a run that will have a backward
  RouterOptions router;
  ExpertWeights experts;
  std::optional<SharedExperts> shared = std::nullopt;
  bool weighs_inputs = false;  // the weight multiplies what goes into an expert, not what comes out
  // Tensor parallelism. Shared experts are cut over its ranks. Where `cuts_experts`, the others are too, and work on
  // the rows of all its ranks; else they are not, and this rank's rows are its own tokens.
  RowExchange& rows = all_rows_here();
  bool cuts_experts = false;
  ExpertExchange& exchange = all_experts_here();
  std::shared_ptr<KeptRouting> kept_routing = nullptr;  // null: nothing is recomputed outside
  RouterLosses losses = {};
};

// What the node keeps besides h, the norm's rstd and the routing. All give the same bits.
enum class ExpertSaves {
  kRows,     // what goes into the experts, and the first products of experts and shared experts
  kHidden,   // without rows of tokens that are here: they are gathered once more
  kNothing,  // all of that is computed, and sent, once more
};

Tensor mixture_of_experts(const Tensor& h_tD, const MixtureOfExpertsArgs& args, ExpertSaves saves);

}  // namespace titanium::ops
