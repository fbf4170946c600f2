// The first half of an attention layer as one node: normalise, project to queries, keys and values, normalise each head
// of queries and keys if the model does so, rotate.
#pragma once

#include "titanium/ops/head_norm_rope.h"
#include "titanium/ops/row_exchange.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

struct Qkv {
  Tensor q_BSHE;
  Tensor k_BSKE;
  Tensor v_BSKE;
  Tensor residual_tD;  // x itself, for what adds x again: its gradient then joins that of the norm in one pass
};

// Added to the projections before everything else; null: there are none.
struct QkvBiases {
  Parameter* q = nullptr;
  Parameter* k = nullptr;
  Parameter* v = nullptr;
};

struct NormQkvRopeArgs {
  Parameter& norm;
  double eps;
  Parameter& wq;
  Parameter& wk;
  Parameter& wv;
  int64_t head_dim;
  Tensor rope_table;  // [S, E/2] or [B, S, E/2]: Note [Rows of the rope table]
  RowExchange& exchange = all_rows_here();
  RopePairs pairs = RopePairs::kAdjacent;
  std::optional<HeadNorms> head_norms = std::nullopt;  // before the rotation
  QkvBiases biases = {};
};

// x is [B*S, D] with S that of the table. Saves x and the norm's rstd; the normalised x is recomputed in the backward.
// With norms of heads also saves the queries and keys before these, and their rstd.
// With the exchange of several ranks x is this rank's rows and the result has all tokens and this rank's heads.
Qkv norm_qkv_rope(const Tensor& x_tD, const NormQkvRopeArgs& args);

}  // namespace titanium::ops
