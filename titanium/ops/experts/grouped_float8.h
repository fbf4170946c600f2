// The three products of stacked experts whose weight has a recipe (tensor/float8_weight.h): those of a linear layer,
// expert by expert. On a GPU with tensor cores for it in one launch; elsewhere, and where the weight says `emulate`,
// float32 multiplies what the rounded operands stand for, as torchao does.
#pragma once

#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// R rows in the order of experts, `ends_E` as in grouped_linear.h.
Tensor float8_grouped_forward(const Tensor& x_RI, const Parameter& weight, const Tensor& ends_E);
Tensor float8_grouped_input_grad(const Tensor& grad_RO, const Parameter& weight, const Tensor& ends_E);
// [E, O, I], in the dtype of the gradient.
Tensor float8_grouped_weight_grad(const Tensor& grad_RO, const Tensor& x_RI, const Parameter& weight,
                                  const Tensor& ends_E);

}  // namespace titanium::ops
