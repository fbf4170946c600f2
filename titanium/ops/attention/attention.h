// Softmax attention. B batch, S sequence, H query heads, K key/value heads (H a multiple of K), E head dim.
#pragma once

#include "titanium/ops/attention/documents.h"
#include "titanium/ops/record.h"

namespace titanium::ops {

// Causal attention, inside documents if given. q is [B, S, H, E], k and v [B, S, K, E]; the result is
// [B, S, H, E], contiguous.
// Softmax scale 1/sqrt(E). Picks the best path that the device and dtype have (attend.h); saves q, k, v, the output and
// its log-sum-exp.
Tensor attention(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKE, const DocumentsPtr& documents);

// The same by definition: explicit mask, fp32 (or fp64) scores, softmax. Differentiable through autograd. Memory grows
// with S^2: for tests and for decoding. q may be shorter than k: it then holds the last tokens.
Tensor attention_by_definition(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKE,
                               const DocumentsPtr& documents);

}  // namespace titanium::ops
