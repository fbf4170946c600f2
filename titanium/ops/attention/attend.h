// One call of the attention that the device's library has, outside autograd: what the operators attention and
// context_attention are made of. B batch, S queries, T keys, H query heads, K key/value heads, E head dim.
#pragma once

#include "titanium/ops/attention/documents.h"
#include "titanium/ops/record.h"

namespace titanium::ops {

// Which keys a query sees.
struct Visible {
  bool causal = true;      // those up to its own position; S = T
  DocumentsPtr documents;  // and of its own document, if not null; only with `causal`
  // Calls will differ in their sizes: takes a library that needs no preparation for each.
  bool sizes_vary = false;
};

struct Attended {
  Tensor out_BSHE;         // contiguous
  Tensor log_sum_exp_BHS;  // of the scaled scores, in fp32 (fp64 for fp64)
  // Nothing is random here, but CUDA's libraries ask for it in the backward. That of any call with the same `documents`
  // and `sizes_vary` will do.
  Tensors random_state;
};

// Softmax attention with scale 1/sqrt(E). q is [B, S, H, E], k and v are [B, T, K, E], each with a contiguous last dim.
// The library is that of attention_library.h: on the CPU ATen's flash attention; on CUDA in 16 bits cuDNN, or Flash
// inside documents and where sizes vary; by definition where they cannot.
Attended attend(const Tensor& q_BSHE, const Tensor& k_BTKE, const Tensor& v_BTKE, const Visible& visible);

// Gradients of q, k and v. `attended` may be the result over more keys than these: the gradients are then this call's
// part of them.
Tensors attend_backward(const Tensor& grad_BSHE, const Tensor& q_BSHE, const Tensor& k_BTKE, const Tensor& v_BTKE,
                        const Attended& attended, const Visible& visible);

// The same with explicit scores, whose memory grows with S * T.
Attended attend_by_definition(const Tensor& q_BSHE, const Tensor& k_BTKE, const Tensor& v_BTKE, const Visible& visible);
Tensors attend_by_definition_backward(const Tensor& grad_BSHE, const Tensor& q_BSHE, const Tensor& k_BTKE,
                                      const Tensor& v_BTKE, const Attended& attended, const Visible& visible);

// True where query i may see key j, [1 or B, 1, S, T]. With fewer queries than keys they are the last tokens.
Tensor visible_keys(int64_t batch, int64_t queries, int64_t keys, const Visible& visible, Device device);

}  // namespace titanium::ops
