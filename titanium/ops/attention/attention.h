// Softmax attention. B batch, S sequence, H query heads, K key/value heads (H a multiple of K), E head dim of queries
// and keys, V head dim of values.
#pragma once

#include "titanium/ops/attention/attend.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// How scores become weights.
struct SoftmaxArgs {
  std::optional<double> scale;  // of scores; 1/sqrt(E) unless given
  Parameter* sinks = nullptr;   // [H], or null: Note [A sink joins at the end]
};

// Attention over the keys that `visible` says; causal. q is [B, S, H, E], k [B, S, K, E] and v [B, S, K, V]; the result
// is [B, S, H, V], contiguous.
// Picks the best path that the device and dtype have (attend.h); saves q, k, v, the output and its log-sum-exp. The
// gradient of the sinks is added to theirs.
Tensor attention(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKV, const Visible& visible = {},
                 const SoftmaxArgs& softmax = {});

// The same by definition: explicit mask, fp32 (or fp64) scores, softmax. Differentiable through autograd, sinks [H]
// included (undefined: there are none). Memory grows with S^2: for tests and for decoding. q may be shorter than k: it
// then holds the last tokens.
Tensor attention_by_definition(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKV,
                               const Visible& visible = {}, std::optional<double> scale = std::nullopt,
                               const Tensor& sinks_H = {});

}  // namespace titanium::ops
