// Many copies or additions at once.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

// to[i] = from[i], cast to to[i]'s dtype. Pairs have equal shapes; a tensor is contiguous, or has two dims and
// contiguous rows. On a GPU one launch for all that our kernels take. Queues work only.
void copy_tensors(const Tensors& to, const Tensors& from);
// The same for to[i] += from[i], in fp32 where our kernels do it.
void add_tensors(const Tensors& to, const Tensors& from);

}  // namespace titanium::ops
