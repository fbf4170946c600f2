#include "titanium/ops/linear/linear_operand.h"

#include "titanium/ops/linear/quantize.h"

namespace titanium::ops {

void LinearOperand::make(bool rows, bool columns, const Float8Weight& weight) const {
  const bool one_scale = has_one_scale(weight);
  const bool is_grad = role_ == Role::kOutputGrad;
  const Dtype dtype = is_grad && one_scale ? kE5m2 : kE4m3;
  const bool columns_are_cut = weight.cut_dim == (is_grad ? 0 : 1);
  const Quantization for_rows = quantization(weight, dtype, one_scale, columns_are_cut);
  const Quantization for_columns = quantization(weight, dtype, one_scale, columns_are_cut && one_scale);
  State& state = *state_;
  if (rows && columns) {
    const QuantizedBothWays both = quantize_both_ways(state.x_TC, for_rows, for_columns, state.amax);
    state.rows = both.as_it_is;
    state.columns = both.transposed;
  } else if (rows) {
    state.rows = quantize(state.x_TC, for_rows, state.amax);
  } else {
    state.columns = quantize_transposed(state.x_TC, for_columns, state.amax);
  }
}

const Float8Tensor& LinearOperand::rows(const Float8Weight& weight) const {
  // A gradient will be asked for its columns as well, unless the recipe leaves the weight's gradient alone.
  const bool both = role_ == Role::kOutputGrad && weight.recipe != Float8Recipe::kRowwiseWithGwHp;
  if (!state_->rows.data.defined()) make(true, both && !state_->columns.data.defined(), weight);
  return state_->rows;
}

const Float8Tensor& LinearOperand::columns(const Float8Weight& weight) const {
  if (!state_->columns.data.defined()) make(false, true, weight);
  return state_->columns;
}

void LinearOperand::rows_and_columns(const Float8Weight& weight) const { make(true, true, weight); }

}  // namespace titanium::ops
