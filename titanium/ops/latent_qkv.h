// The first half of latent attention (DeepSeek's MLA) as one node: normalise, project to queries and to a small latent
// of keys and values, and spread that out over the heads.
// Shapes: B batch, S sequence, T = B*S tokens, t this rank's rows of them, D model dim, H heads here, N dims of a head
// that know no position, P those that rope rotates, V head dim of values, R latent dim of keys and values.
#pragma once

#include "titanium/ops/norm_qkv_rope.h"

namespace titanium::ops {

// Queries by way of a latent of their own.
struct LatentQueries {
  Parameter& wq_a;    // [latent dim, D]
  Parameter& q_norm;  // [latent dim]
};

struct LatentQkvArgs {
  Parameter& norm;
  double eps;
  std::optional<LatentQueries> latent_queries;  // none: wq takes the normalised x
  Parameter& wq;                                // [H (N+P), D], or [H (N+P), latent dim]: wq_b
  Parameter& wkv_a;                             // [R+P, D]
  Parameter& kv_norm;                           // [R]
  Parameter& wkv_b;                             // [H (N+V), R]
  double latent_eps;                            // of the norms of latents
  int64_t nope_dim;                             // N
  int64_t value_dim;                            // V
  Tensor rope_table;                            // [S, P/2] or [B, S, P/2]: Note [Rows of the rope table]
  RowExchange& exchange = all_rows_here();
};

// x is [B*S, D]. The result has queries and keys [B, S, H, N+P], of which the last P columns are rotated in adjacent
// pairs (those of keys are the same for all heads), and values [B, S, H, V].
// Saves x, the latents before their norms, and the rstd of all norms; what is normalised is recomputed in the backward.
// With the exchange of several ranks x is this rank's rows and the result has all tokens and this rank's heads. Latents
// are computed on rows, so that what is gathered is small; only queries without a latent need all of x.
Qkv latent_qkv(const Tensor& x_tD, const LatentQkvArgs& args);

// What decoding keeps of a token instead of its keys and values, outside autograd.
struct LatentTokens {
  Tensor q_BSHE;        // as above
  Tensor latents_BS1W;  // the normalised latent and the rotated part of the keys: W = R + P
};
LatentTokens latent_tokens(const Tensor& x_tD, const LatentQkvArgs& args);

}  // namespace titanium::ops
