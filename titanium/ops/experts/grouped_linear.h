// Grouped GEMMs: products of the rows of many experts with their stacked weights [E, out, in]. Every such product goes
// through here.
// R rows; those of expert e end at ends[e], an int32 tensor on the device of the rows.
#pragma once

#include <functional>

#include "titanium/ops/experts/expert_operand.h"
#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// Rows times the transposed matrix of their expert. Computed in the dtype of the rows, to which the weight is cast; in
// float8 where the weight has a recipe (grouped_float8.h).
Tensor grouped_forward(const ExpertOperand& x_RI, const Parameter& weight, const Tensor& ends_E);
// Rows times the matrices of two weights, and silu of the first result times the second. The product is undefined where
// it is not made along the way.
struct GatedRows {
  Tensor gate_RO, up_RO, product_RO;
};
GatedRows grouped_gated_forward(const ExpertOperand& x_RI, const Parameter& gate, const Parameter& up,
                                const Tensor& ends_E);

// The gradient of the rows.
Tensor grouped_input_grad(const ExpertOperand& grad_RO, const Parameter& weight, const Tensor& ends_E);
// The gradient of rows that went into several weights: the sum, or tensors whose sum it is unless `as_one`.
Tensors grouped_input_grads(const std::vector<ExpertOperand>& grads, const std::vector<Parameter*>& weights,
                            const Tensor& ends_E, bool as_one);
// Adds to the weight's gradient, which is zero for experts without rows. At once, or when the parameter's queue of
// deferred work is run. Rows in float8 do not wait for that, so products that take them come before.
void accumulate_grouped_weight_grad(const ExpertOperand& grad_RO, const ExpertOperand& x_RI, Parameter& weight,
                                    const Tensor& ends_E);

// Biases [E, out]: adds that of its expert to each row, in place; and the gradient, from that of the rows, each times
// its weight if there are weights [R].
void add_expert_bias(const Tensor& rows_RO, const Parameter& bias, const Tensor& ends_E);
void accumulate_expert_bias_grad(const Tensor& grad_RO, Parameter& bias, const Tensor& ends_E,
                                 const Tensor& weights_R = {});
// The expert of each row, int64.
Tensor expert_of_row(const Tensor& ends_E, int64_t rows);

// Whether our kernels can read and write x box by box: contiguous, from a multiple of 16 bytes on.
bool is_aligned(const Tensor& x);

// Calls `use` for each expert, with its first row and the number of its rows. The host waits for `ends` where the
// device is not the CPU.
void for_each_expert(const Tensor& ends_E, const std::function<void(int64_t expert, int64_t begin, int64_t rows)>& use);

}  // namespace titanium::ops
