// The feed-forward half of a block as one node: h + w2(silu(w1 n) * (w3 n)) with n = rms_norm(h).
#pragma once

#include "titanium/ops/row_exchange.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

struct FeedForwardArgs {
  Parameter& norm;
  double eps;
  Parameter& w1;
  Parameter& w2;
  Parameter& w3;
  RowExchange& exchange = all_rows_here();
};

// What the node keeps besides h and the norm's rstd. All give the same bits.
enum class FeedForwardSaves {
  kEverything,  // w1 n and w3 n; where w2 multiplies float8, also its input in float8
  kGateAndUp,   // w1 n and w3 n; the rest is elementwise and recomputed
  kNothing,     // the two products are recomputed as well
};

// h and the result are this rank's rows.
Tensor feed_forward(const Tensor& h_tD, const FeedForwardArgs& args, FeedForwardSaves saves);

}  // namespace titanium::ops
