// Rows of experts as grouped products take them.
#pragma once

#include "titanium/ops/experts/dispatch.h"
#include "titanium/tensor/float8_weight.h"

namespace titanium::ops {

// Columns of the rows of each expert in float8: Note [Lines of experts] in kernels/expert_float8.h.
struct ExpertLines {
  Tensor data_CL;
  Tensor reciprocals_EC;  // 1 / scale; finite for experts without rows
  Tensor ends_E;          // where the lines of each expert end
};
// Room for the lines of so many columns, and where they end. `ends_E`: where rows end.
ExpertLines make_expert_lines(int64_t columns, int64_t rows, const Tensor& ends_E);

// Rows [R, C] that products may share, so that each form of them is made once, and only if it is wanted. Copies share
// what was made.
class ExpertOperand {
 public:
  ExpertOperand() = default;
  ExpertOperand(Tensor rows_RC);
  // Rows of tokens [T, C].
  ExpertOperand(Tensor tokens_TC, Dispatch dispatch);
  // Rows that have only been made in float8, for products of tensor cores; either may be undefined.
  static ExpertOperand of_float8(Float8Tensor rows, ExpertLines lines);

  bool is_empty() const { return state_ == nullptr; }
  int64_t count() const;
  // Those that rows will be gathered from, or the rows.
  const Tensor& source() const;
  bool is_float8_only() const { return !source().defined(); }

  // Its rows alone, if they have been gathered; otherwise empty. For what waits for the backward.
  ExpertOperand rows_in_memory() const {
    return is_empty() || !state_->rows_RC.defined() ? ExpertOperand() : ExpertOperand(state_->rows_RC);
  }

  // Gathers them if need be; then tokens have served, and an operand that waits for products holds rows alone.
  const Tensor& tensor() const;
  // In e4m3 with one scale for each row, a power of two. On a GPU with our kernels.
  const Float8Tensor& rows() const;
  // By columns. `ends_E` is where the rows of each expert end.
  const ExpertLines& lines(const Tensor& ends_E) const;

  // After the last product that takes them: gradients of weights take lines.
  void drop_float8_rows() const { state_->rows = {}; }

 private:
  struct State {
    Tensor tokens_TC;  // undefined, or what rows will be gathered from
    Dispatch dispatch;
    Tensor rows_RC;
    Float8Tensor rows;
    ExpertLines lines;
  };
  std::shared_ptr<State> state_;
};

}  // namespace titanium::ops
