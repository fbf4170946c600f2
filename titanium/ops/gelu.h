// GELU in its tanh form, outside autograd, between columns of wider rows: [..., M] whose last dim is contiguous and
// whose other dims are one of rows that are equally far apart.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

Tensor gelu(const Tensor& x);
void write_gelu(const Tensor& into, const Tensor& x);
// The gradient of x from that of the result.
void write_gelu_backward(const Tensor& into, const Tensor& grad, const Tensor& x);

}  // namespace titanium::ops
