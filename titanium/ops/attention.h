// Softmax attention. B batch, S sequence, H query heads, K key/value heads (H a multiple of K), E head dim.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "titanium/ops/record.h"

namespace titanium::ops {

// Note [Documents]
// With block-causal attention a token sees only earlier tokens of its own document. An end-of-sequence token belongs to
// the document it ends, and a row of the batch starts and ends a document. `boundaries` holds the first token of every
// document, counted over the flattened batch, and the total at the end: [0, ..., B*S].
struct Documents {
  std::vector<int32_t> boundaries;
  int64_t longest = 0;
  Tensor boundaries_on_device;  // int32; on the CPU undefined
};

using DocumentsPtr = std::shared_ptr<const Documents>;  // null: the whole row is one document

// Cuts [B, S] token ids, which lie on the CPU, into documents.
DocumentsPtr find_documents(std::span<const int64_t> tokens, int64_t seq_len, int64_t eos_id, Device device);

// Causal attention, inside documents if given. q is [B, S, H, E], k and v [B, S, K, E]; the result is
// [B, S, H, E], contiguous.
// Softmax scale 1/sqrt(E). Picks the best path that the device and dtype have; saves q, k, v, the output and its
// log-sum-exp.
Tensor attention(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKE, const DocumentsPtr& documents);

// The same by definition: explicit mask, fp32 (or fp64) scores, softmax. Differentiable through autograd. Memory grows
// with S^2: for tests, and for devices without a better path. q may be shorter than k: it then holds the last tokens.
Tensor attention_by_definition(const Tensor& q_BSHE, const Tensor& k_BSKE, const Tensor& v_BSKE,
                               const DocumentsPtr& documents);

}  // namespace titanium::ops
