// The router of a layer of experts: from logits of all experts to the chosen ones and their weights, and back. T
// tokens, E experts, K choices of each token. All arrays are contiguous and fp32 unless said otherwise. Pointers are
// device memory; work is queued on `stream` and nothing synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

enum class RouterScores : int32_t { kSoftmax, kSigmoid };

constexpr int64_t kMostExperts = 512, kMostChoices = 16, kMostExpertGroups = 32;

// Scores are softmax or sigmoid of the logits. A token chooses the K experts of the largest score + bias, in descending
// order; of equal ones the lower expert comes first, and NaN counts as largest. With groups of neighbouring experts,
// the sum of the two largest score + bias of a group is its rank, and only experts of the best `limited_groups` groups
// are chosen. A weight is the score without the bias, divided by (the sum of the token's chosen scores, in the order of
// choice, + 1e-20) if `normalise`, times `scale`.
struct RouteArgs {
  RouterScores function;
  const float* logits;  // [T, E]
  const float* bias;    // [E]; may be null
  int32_t* experts;     // [T, K]
  float* weights;       // [T, K]
  float* scores;        // [T, E], without the bias; may be logits
  int64_t tokens;
  int64_t num_experts;     // at most kMostExperts
  int64_t top_k;           // at most kMostChoices and num_experts
  int64_t groups;          // 0: none; otherwise a divisor of num_experts, at most kMostExpertGroups
  int64_t limited_groups;  // their experts must be top_k or more
  bool normalise;
  bool force_balance;  // choice k of token t is expert (t * K + k) % E, whatever the scores
  float scale;
};
void route(const RouteArgs& args, GpuStream stream);

// The gradient of the logits from that of the weights and, where there is one, of the scores. The choice itself has no
// gradient.
struct RouteBackwardArgs {
  RouterScores function;
  const float* grad_weights;  // [T, K]
  const float* grad_scores;   // [T, E]; may be null; added to what comes through the weights
  const int32_t* experts;     // [T, K], as route has written them
  const float* scores;        // [T, E], likewise
  float* grad_logits;         // [T, E]; may be grad_scores
  int64_t tokens;
  int64_t num_experts;
  int64_t top_k;
  bool normalise;
  float scale;
};
void route_backward(const RouteBackwardArgs& args, GpuStream stream);

}  // namespace titanium::kernels
