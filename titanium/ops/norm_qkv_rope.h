// The first half of an attention layer as one node: normalise, project to queries, keys and values, rotate.
#pragma once

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

struct Qkv {
  Tensor q_BSHE;
  Tensor k_BSKE;
  Tensor v_BSKE;
};

struct NormQkvRopeArgs {
  Parameter& norm;
  double eps;
  Parameter& wq;
  Parameter& wk;
  Parameter& wv;
  int64_t head_dim;
  Tensor rope_table;  // [S, E/2], see rope.h
};

// x is [B*S, D] with S the table's rows. Saves x and the norm's rstd; the normalised x is recomputed in the backward.
Qkv norm_qkv_rope(const Tensor& x_TD, const NormQkvRopeArgs& args);

}  // namespace titanium::ops
