// One call of the attention that the device's library has, outside autograd: what the operators attention and
// context_attention are made of. B batch, S queries, T keys, H query heads, K key/value heads, E head dim of queries
// and keys, V head dim of values.
#pragma once

#include <optional>

#include "titanium/ops/attention/documents.h"
#include "titanium/ops/record.h"

namespace titanium::ops {

// Which keys a query sees. Positions are counted from the first key on; without `first_query` the queries are the last
// of them. All conditions must hold.
struct Visible {
  bool causal = true;                  // those up to its own position
  DocumentsPtr documents = nullptr;    // and of its own document, if not null; only with `causal` and S = T
  int64_t window = 0;                  // and less than `window` positions before its own; 0: any
  int64_t chunk = 0;                   // and of its own chunk, where chunks of so many positions tile the row; 0: any
  std::optional<int64_t> first_query;  // the position of the first query; only without `causal`
  // Calls will differ in their sizes: takes a library that needs no preparation for each.
  bool sizes_vary = false;
};

struct Attended {
  Tensor out_BSHV;         // contiguous
  Tensor log_sum_exp_BHS;  // of the scaled scores, in fp32 (fp64 for fp64)
  // Nothing is random here, but CUDA's libraries ask for it in the backward. That of any call with the same
  // `documents`, `window` and `sizes_vary` will do.
  Tensors random_state;
};

// Softmax attention with `scale`, or 1/sqrt(E) without one. q is [B, S, H, E], k [B, T, K, E] and v [B, T, K, V], each
// with a contiguous last dim. Chunks must have been made documents or rows of the batch: Note [Chunks are documents].
// The library is that of attention_library.h: on the CPU ATen's flash attention; on CUDA in 16 bits cuDNN, or Flash
// inside documents, with windows and where sizes vary; by definition where they cannot.
Attended attend(const Tensor& q_BSHE, const Tensor& k_BTKE, const Tensor& v_BTKV, const Visible& visible,
                std::optional<double> scale = std::nullopt);

// Gradients of q, k and v. `attended` may be the result over more keys than these: the gradients are then this call's
// part of them.
Tensors attend_backward(const Tensor& grad_BSHV, const Tensor& q_BSHE, const Tensor& k_BTKE, const Tensor& v_BTKV,
                        const Attended& attended, const Visible& visible, std::optional<double> scale = std::nullopt);

}  // namespace titanium::ops
