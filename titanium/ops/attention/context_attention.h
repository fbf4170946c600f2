// Attention over a sequence that is spread over ranks. B batch, S tokens of the whole sequence, s of them here, H query
// heads, K key/value heads, E head dim of queries and keys, V head dim of values.
#pragma once

#include "titanium/ops/attention/attention.h"
#include "titanium/ops/attention/context_exchange.h"

namespace titanium::ops {

// Note [Attention over parts]
// A rank has the queries of its chunks (Note [Head and tail]) and needs the keys and values of all earlier ones. They
// come part by part. Two chunks relate in one of three ways: the same (causal), key earlier (every query sees every
// key), key later (nothing, no work). So a part is a few rectangles of queries and keys without any mask, and with
// documents (Note [Documents]) too: of the keys in front of a chunk only the document that goes on into it is seen, and
// only by its queries. Chunks that limit attention are documents here (Note [Chunks are documents]). A window hides
// keys that are too far away, and cuts through the rectangles at its edge, which alone have a mask. Without causality
// every query sees every key of all other chunks, and there are no documents and windows.
// Attention over some of the keys gives an output and a log-sum-exp; two such results are merged by weights that follow
// from their log-sum-exps, which is exact. In the backward the gradients of a rectangle follow from its queries, keys
// and values and the whole output and log-sum-exp, and are added up: those of queries here, those of keys and values on
// their way home.
//
// As attention, over the whole sequence. q is [B, s, H, E], k [B, s, K, E] and v [B, s, K, V]: this rank's rows; the
// result is [B, s, H, V], contiguous. Saves q, k, v, the output and its log-sum-exp of this rank only. Partial results
// are merged in fp32 (fp64 for fp64). `exchange` outlives the backward.
Tensor context_attention(const Tensor& q_BsHE, const Tensor& k_BsKE, const Tensor& v_BsKV, const Visible& visible,
                         ContextExchange& exchange, const SoftmaxArgs& softmax = {});

// A stretch of this rank's queries that sees a stretch of a part.
struct Rectangle {
  int64_t row, rows;  // of the batch
  int64_t first_query, queries;
  int64_t first_key, keys;
  // Positions from the first key to the first query where the window's edge goes through the rectangle. 0: every query
  // sees every key.
  int64_t distance = 0;
  bool operator==(const Rectangle&) const = default;
};

// The rectangles of a part: which of its chunks, of `length` tokens each, stand in front of this rank's; without
// causality, which are others than this rank's. `visible` has documents and a window, if any.
std::vector<Rectangle> visible_rectangles(const SequenceShare& share, int64_t batch, int64_t length,
                                          const std::vector<int64_t>& key_chunks, const Visible& visible);

}  // namespace titanium::ops
