// The three products of a linear layer whose weight has a recipe (Note [Float8 recipes] in tensor/float8_weight.h). On
// a GPU the tensor cores multiply float8; elsewhere, and where the weight says `emulate`, float32 multiplies what the
// float8 operands stand for, as torchao does.
#pragma once

#include "titanium/ops/linear/linear_operand.h"
#include "titanium/ops/linear/quantize.h"
#include "titanium/ops/row_exchange.h"

namespace titanium::ops {

// out = the product, or product + added, where `added` may be out. x is [T, in], grad is [T, out].
void float8_output(const Tensor& out_TO, const LinearInput& x_TI, const Parameter& weight, const Tensor& added_TO = {});
void float8_input_grad(const Tensor& out_TI, const LinearGrad& grad_TO, const Parameter& weight,
                       const Tensor& added_TI = {});
void float8_weight_grad(const Tensor& out_OI, const LinearGrad& grad_TO, const LinearInput& x_TI,
                        const Parameter& weight, const Tensor& added_OI = {});
// False: the recipe leaves this product in high precision, and the function above must not be called.
bool has_float8_weight_grad(const Parameter& weight);

// Whether operands of the weight's products have one scale, so that the kernel that makes one may find its largest
// magnitude; not where rows come from other ranks.
bool wants_amax(const Parameter& weight, const RowExchange& exchange);

// Whether products with this weight and such activations run on tensor cores.
bool multiplies_float8(const Tensor& x, const Parameter& weight);

// What a norm has made of x, for the gradients of weights alone, straight from x: where all these weights multiply
// float8 and the forward has found `amax`.
LinearInput normalised_in_float8(const Tensor& x_TD, const Tensor& rstd_T1, const Parameter& norm, const Tensor& amax);

}  // namespace titanium::ops
