// The L2 norm of all gradients together, and clipping by it.
#pragma once

#include <span>

#include "titanium/tensor/parameter.h"

namespace titanium::optim {

// Both are accumulated in float64, so that the result does not depend on how the parameters are cut beyond float64's
// rounding, and on the CPU not at all on the number of threads. Parameters without a gradient count as zero. The result
// is a float64 scalar on the gradients' device; on CUDA nothing waits for it. All gradients are on one device.
Tensor sum_of_squares(std::span<Parameter* const> parameters);
Tensor total_norm(std::span<Parameter* const> parameters);

// min(1, max_norm / (norm + 1e-6)), for `norm` as total_norm returned it, or as the ranks agreed on it; beside the
// norm.
Tensor clip_scale(const Tensor& norm, double max_norm);

// Multiplies every gradient by clip_scale. Queues work only. A gradient that is not finite makes all of them so: check
// the norm where it is logged. Before an update of Adam this is not needed: its `step` scales while it reads.
void clip_grads(std::span<Parameter* const> parameters, double max_norm, const Tensor& norm);

}  // namespace titanium::optim
