// The output projection and the cross-entropy in one node, chunk of tokens by chunk of tokens, so that the logits of
// the whole batch never exist.
#pragma once

#include "titanium/ops/cross_entropy.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

struct HeadLossArgs {
  Parameter& weight;
  // With several ranks x is this rank's rows [t, D], the weight is cut along the vocabulary, and labels are those of
  // all T tokens. Every rank gets the whole loss.
  RowExchange& exchange = all_rows_here();
  // With several ranks: exchange maxima and sums of a chunk's logits (true), or the logits themselves.
  bool loss_parallel = true;
};

// scale * sum over tokens of -log softmax(W x)[label], as an fp64 scalar on x's device. kIgnoreIndex does not count.
// The gradients of x and W are computed in the forward, while the chunk's logits are at hand, so the result must be the
// end of the graph: call backward() on it without a gradient of your own, and put every factor into `scale`.
Tensor head_loss(const Tensor& x_tD, const HeadLossArgs& args, const Tensor& labels_T, double scale);

}  // namespace titanium::ops
