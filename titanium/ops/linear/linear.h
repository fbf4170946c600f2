// Every matrix product with a parameter goes through here. x is [T, in], a weight is [out, in].
#pragma once

#include "titanium/ops/linear/linear_operand.h"
#include "titanium/ops/row_exchange.h"

namespace titanium::ops {

// The three products of a linear layer, for operators that record a larger node. The computation runs in the dtype of
// the activations, to which the weight is cast, or in float8 where the weight has a recipe (float8.h). A bias [out] is
// added to every row; null: there is none.
Tensor linear_forward(const LinearInput& x_TI, const Parameter& weight, const Parameter* bias = nullptr);
Tensor linear_input_grad(const LinearGrad& grad_TO, const Parameter& weight);
void write_input_grad(const Tensor& into_TI, const LinearGrad& grad_TO, const Parameter& weight);  // into = the above
void add_input_grad(const Tensor& sum_TI, const LinearGrad& grad_TO, const Parameter& weight);     // sum += the above
// The product is computed at once, or when the parameter's queue of deferred work is run.
void accumulate_weight_grad(const LinearGrad& grad_TO, const LinearInput& x_TI, Parameter& weight);
void accumulate_bias_grad(const Tensor& grad_TO, Parameter* bias);

// x W^T. Saves x.
Tensor linear(const Tensor& x_TI, Parameter& weight);
// residual + x W^T [+ bias]. With the exchange of several ranks x and W are cut along `in`, and the residual and the
// result are this rank's rows, [t, out]; the whole bias is added to them, so that its gradient is that of these rows.
// Saves x.
Tensor linear_residual(const Tensor& x_TI, Parameter& weight, const Tensor& residual_tO,
                       RowExchange& exchange = all_rows_here(), Parameter* bias = nullptr);
// The same without recording.
Tensor linear_residual_forward(const LinearInput& x_TI, const Parameter& weight, const Tensor& residual_tO,
                               RowExchange& exchange);

}  // namespace titanium::ops
