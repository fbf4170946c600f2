// Every matrix product with a parameter goes through here. x is [T, in], a weight is [out, in].
#pragma once

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// The three products of a linear layer, for operators that record a larger node. The computation runs in the dtype of
// the activations; the weight is cast to it.
Tensor linear_forward(const Tensor& x_TI, const Parameter& weight);
Tensor linear_input_grad(const Tensor& grad_TO, const Parameter& weight);
void add_input_grad(Tensor& sum_TI, const Tensor& grad_TO, const Parameter& weight);  // sum += the above
void accumulate_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, Parameter& weight);

// x W^T, or residual + x W^T. Saves x.
Tensor linear(const Tensor& x_TI, Parameter& weight);
Tensor linear_residual(const Tensor& x_TI, Parameter& weight, const Tensor& residual_TO);

}  // namespace titanium::ops
