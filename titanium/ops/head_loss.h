// The output projection and the cross-entropy in one node, chunk of tokens by chunk of tokens, so that the logits of
// the whole batch never exist.
#pragma once

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

inline constexpr int64_t kIgnoreIndex = -100;  // labels with this value do not count

// scale * sum over tokens of -log softmax(W x)[label], as an fp64 scalar on x's device.
// The gradients of x and W are computed in the forward, while the chunk's logits are at hand, so the result must be the
// end of the graph: call backward() on it without a gradient of your own, and put every factor into `scale`.
Tensor head_loss(const Tensor& x_TD, Parameter& weight_VD, const Tensor& labels_T, double scale);

}  // namespace titanium::ops
