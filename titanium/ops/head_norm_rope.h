// Queries and keys whose heads are normalised before they are rotated: in one pass each way where our kernels have it,
// else one after the other. Shapes: B batch, S sequence, H query heads, K key/value heads, E head dim.
#pragma once

#include "titanium/ops/rope.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// The norms of the heads of queries and keys; weights [E].
struct HeadNorms {
  Parameter& q;
  Parameter& k;
  double eps;
};

// What the backward needs: queries and keys before their norms, and 1 / sqrt(mean(x^2) + eps) of each head in fp32,
// [B*S*H, 1] and [B*S*K, 1].
struct UnnormalisedHeads {
  Tensor q_BSHE, k_BSKE;
  Tensor q_rstd, k_rstd;
};

// Queries and keys, whose places in memory a caller chooses: columns of wider rows, or tokens of longer sequences.
struct QueriesAndKeys {
  Tensor q_BSHE, k_BSKE;
};

// The queries and keys that are given stay as they are and are part of `saved`; the heads of a token must lie one after
// another. The result is written to `into`, or to memory of its own.
Rotated norm_and_rotate(const Tensor& q_BSHE, const Tensor& k_BSKE, const HeadNorms& norms, const Tensor& table_SE,
                        RopePairs pairs, UnnormalisedHeads& saved, const QueriesAndKeys& into = {});

// The gradients of queries and keys before their norms, from those of the rotated ones. Without `into` these are given
// up: the results may lie in their memory. Adds to the gradients of the norms' weights.
Rotated norm_and_rotate_backward(const Tensor& grad_q_BSHE, const Tensor& grad_k_BSKE, const HeadNorms& norms,
                                 const Tensor& table_SE, RopePairs pairs, const UnnormalisedHeads& saved,
                                 bool with_amax, const QueriesAndKeys& into = {});

}  // namespace titanium::ops
