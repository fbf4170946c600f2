// What the products of linear layers take beside the weight: the input, and the gradient of the output.
#pragma once

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// A matrix [T, C] that layers may share, so that it is quantised once for all of them. Copies share what was made.
class LinearOperand {
 public:
  const Tensor& tensor() const { return state_->x_TC; }
  bool is_empty() const { return !state_->x_TC.defined() && !state_->columns.data.defined(); }

  // In float8 as products want it: what they sum over lies together. `rows` is [T, C], `columns` is [C, T]. Made by the
  // recipe of the first weight that asks; those that share an operand have the same.
  const Float8Tensor& rows(const Float8Weight& weight) const;
  const Float8Tensor& columns(const Float8Weight& weight) const;

  // Makes both, which takes less than one after the other.
  void rows_and_columns(const Float8Weight& weight) const;

  // Leaves what `columns` can be made of, or has made; for what waits for the backward.
  void drop_rows() { state_->rows = {}; }
  // Leaves only what `columns` has made.
  void keep_columns_only() { state_->x_TC = Tensor(), drop_rows(); }

 protected:
  enum class Role { kInput, kOutputGrad };
  LinearOperand(Tensor x_TC, Role role, Tensor amax)
      : state_(std::make_shared<State>(State{std::move(x_TC), std::move(amax), {}, {}})), role_(role) {}
  struct State {
    Tensor x_TC;
    Tensor amax;  // of x, fp32; undefined until it is known
    Float8Tensor rows, columns;
  };

  template <typename Operand>
  Operand same_or(const Tensor& x_TC) const {
    return x_TC.is_same(tensor()) ? static_cast<const Operand&>(*this) : Operand(x_TC);
  }

  std::shared_ptr<State> state_;

 private:
  void make(bool rows, bool columns, const Float8Weight& weight) const;
  Role role_;
};

// A tensor stands for itself. `amax` is its largest magnitude where it is known already: fp32, one number.
class LinearInput : public LinearOperand {
 public:
  LinearInput(Tensor x_TI, Tensor amax = {}) : LinearOperand(std::move(x_TI), Role::kInput, std::move(amax)) {}
  // One that has only been made in float8.
  static LinearInput of_columns(Float8Tensor columns) {
    LinearInput input = Tensor();
    input.state_->columns = std::move(columns);
    return input;
  }
  // This one if it is made of `x`, else one of its own.
  LinearInput of(const Tensor& x_TI) const { return same_or<LinearInput>(x_TI); }
};

class LinearGrad : public LinearOperand {
 public:
  LinearGrad(Tensor grad_TO, Tensor amax = {})
      : LinearOperand(std::move(grad_TO), Role::kOutputGrad, std::move(amax)) {}
  LinearGrad of(const Tensor& grad_TO) const { return same_or<LinearGrad>(grad_TO); }
};

}  // namespace titanium::ops
