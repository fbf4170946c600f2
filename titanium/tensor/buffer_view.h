// Tensors over parts of a flat buffer, for code that makes hundreds of them in each step.
#pragma once

#include "titanium/tensor/tensor.h"

namespace titanium {

// `shape` elements of `dtype` in the memory of `buffer`, adjacent or by `strides`; `offset` is the place of the first,
// counted in elements of `dtype` from the beginning of `buffer`. Autograd does not know that the two are related, which
// makes it several times cheaper than narrow and view.
Tensor buffer_view(const Tensor& buffer, Dtype dtype, int64_t offset, c10::IntArrayRef shape);
Tensor buffer_view(const Tensor& buffer, Dtype dtype, int64_t offset, c10::IntArrayRef shape, c10::IntArrayRef strides);

}  // namespace titanium
