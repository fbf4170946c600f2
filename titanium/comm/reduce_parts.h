// The arithmetic of a reduction, where a back end does not do it itself.
#pragma once

#include <span>

#include "titanium/comm/group.h"

namespace titanium::comm {

// out = op(parts[0], parts[1], ...), in this order; 16-bit floats are accumulated in fp32 and rounded once, and an
// average of integers is rounded towards zero. All have as many elements as `out` and its dtype.
void reduce_parts(const Tensor& out, std::span<const Tensor> parts, Reduce op);

// sum /= count, as `reduce_parts` does it for kAvg.
void average_sum(const Tensor& sum, int64_t count);

}  // namespace titanium::comm
