// Heads of queries and keys between rope and attention, each function one node.
// B batch, S sequence, H heads, E head dim.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

// x / sqrt(mean(x^2) + eps), head by head and without a weight; computed in fp32 (fp64 for fp64). Saves the result,
// which attention saves as well, and one number per head.
Tensor normalise_heads(const Tensor& x_BSHE, double eps);

// Every head of a token times its factor: [S] for all sequences alike, or [B, S].
Tensor scale_tokens(const Tensor& x_BSHE, const Tensor& factors);

}  // namespace titanium::ops
