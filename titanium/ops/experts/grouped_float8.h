// The three products of stacked experts whose weight has a recipe (tensor/float8_weight.h): those of a linear layer,
// expert by expert. On a GPU with tensor cores for it in one launch, with our kernels (kernels/grouped_float8.h) or
// torch's; elsewhere, and where the weight says `emulate`, float32 multiplies what the rounded operands stand for, as
// torchao does.
#pragma once

#include "titanium/ops/experts/expert_operand.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// Whether products of such rows with the weight run on tensor cores.
bool multiplies_float8_experts(const ExpertOperand& rows, const Parameter& weight);
// Whether one launch of our kernels does two products: of the same rows, or into one sum of gradients.
bool pairs_float8_outputs(const ExpertOperand& x, const Parameter& first, const Parameter& second);
bool pairs_float8_input_grads(const ExpertOperand& grad, const Parameter& first, const Parameter& second);

// R rows in the order of experts, `ends_E` as in grouped_linear.h.
Tensor float8_grouped_forward(const ExpertOperand& x_RI, const Parameter& weight, const Tensor& ends_E);
Tensor float8_grouped_input_grad(const ExpertOperand& grad_RO, const Parameter& weight, const Tensor& ends_E);
// Where one launch does two.
struct Float8Pair {
  Tensor first_RO, second_RO;
};
Float8Pair float8_grouped_forward_pair(const ExpertOperand& x_RI, const Parameter& first, const Parameter& second,
                                       const Tensor& ends_E);
Tensor float8_grouped_input_grad_pair(const ExpertOperand& grad_first, const ExpertOperand& grad_second,
                                      const Parameter& first, const Parameter& second, const Tensor& ends_E);
// Adds to the weight's gradient.
void float8_add_grouped_weight_grad(const ExpertOperand& grad_RO, const ExpertOperand& x_RI, Parameter& weight,
                                    const Tensor& ends_E);

}  // namespace titanium::ops
