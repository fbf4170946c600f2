#include "titanium/ops/experts/expert_operand.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/quantize.h"

namespace titanium::ops {
namespace {

Float8Tensor quantized_rows(const Tensor& x) {
  Tensor amax;
  return quantize(x.contiguous(), {.one_scale = false, .power_of_two = true}, amax);
}

// Tokens become float8 before they are gathered: there are fewer of them than rows. Rows are copied as bits.
Float8Tensor gathered(const Float8Tensor& tokens, const Dispatch& dispatch) {
  return {
      gather_rows(tokens.data.view(at::kBFloat16), dispatch).view(kE4m3), {}, gather_rows(tokens.reciprocal, dispatch)};
}

}  // namespace

ExpertLines make_expert_lines(int64_t columns, int64_t rows, const Tensor& ends_E) {
  const int64_t experts = ends_E.size(0);
  const auto options = ends_E.options();
  const ExpertLines lines{at::empty({columns, kernels::float8_line_length(rows, experts)}, options.dtype(kE4m3)),
                          at::zeros({experts, columns}, options.dtype(at::kFloat)), at::empty_like(ends_E)};
  launch(
      kernels::Float8LineEndsArgs{ends_E.const_data_ptr<int32_t>(), lines.ends_E.mutable_data_ptr<int32_t>(), experts});
  return lines;
}

ExpertOperand::ExpertOperand(Tensor rows_RC) : state_(std::make_shared<State>()) {
  state_->rows_RC = std::move(rows_RC);
}

ExpertOperand::ExpertOperand(Tensor tokens_TC, Dispatch dispatch) : state_(std::make_shared<State>()) {
  state_->tokens_TC = std::move(tokens_TC);
  state_->dispatch = std::move(dispatch);
}

ExpertOperand ExpertOperand::of_float8(Float8Tensor rows, ExpertLines lines) {
  ExpertOperand made = Tensor();
  made.state_->rows = std::move(rows);
  made.state_->lines = std::move(lines);
  return made;
}

int64_t ExpertOperand::count() const {
  if (state_->tokens_TC.defined()) return state_->dispatch.choice_of_row_R.size(0);
  return state_->rows_RC.defined() ? state_->rows_RC.size(0) : state_->rows.data.size(0);
}

const Tensor& ExpertOperand::source() const {
  return state_->tokens_TC.defined() ? state_->tokens_TC : state_->rows_RC;
}

const Tensor& ExpertOperand::tensor() const {
  if (!state_->rows_RC.defined()) {
    TI_ASSERT(state_->tokens_TC.defined(), "rows of experts are there in float8 alone");
    state_->rows_RC = gather_rows(state_->tokens_TC, state_->dispatch);
    state_->tokens_TC = Tensor(), state_->dispatch = {};
  }
  return state_->rows_RC;
}

const Float8Tensor& ExpertOperand::rows() const {
  State& state = *state_;
  if (!state.rows.data.defined()) {
    const Float8Tensor quantized = quantized_rows(source());
    state.rows = state.tokens_TC.defined() ? gathered(quantized, state.dispatch) : quantized;
  }
  return state.rows;
}

const ExpertLines& ExpertOperand::lines(const Tensor& ends_E) const {
  State& state = *state_;
  if (state.lines.data_CL.defined()) return state.lines;
  const Tensor x = source().contiguous();
  const int64_t columns = x.size(1), experts = ends_E.size(0);
  const ExpertLines made = make_expert_lines(columns, count(), ends_E);
  const bool gathers = state.tokens_TC.defined();
  launch(kernels::QuantizeGroupsArgs{
      .type = element_type(x),
      .x = x.const_data_ptr(),
      .choice_of_row = gathers ? state.dispatch.choice_of_row_R.const_data_ptr<int32_t>() : nullptr,
      .top_k = gathers ? count() / x.size(0) : 1,
      .ends = ends_E.const_data_ptr<int32_t>(),
      .line_ends = made.ends_E.const_data_ptr<int32_t>(),
      .groups = experts,
      .rows = count(),
      .dim = columns,
      .lines = static_cast<uint8_t*>(made.data_CL.data_ptr()),
      .length = made.data_CL.size(1),
      .reciprocals = made.reciprocals_EC.mutable_data_ptr<float>()});
  state.lines = made;
  return state.lines;
}

}  // namespace titanium::ops
