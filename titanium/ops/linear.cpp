#include "titanium/ops/linear.h"

#include <ATen/ops/empty.h>

#include "titanium/ops/float8.h"
#include "titanium/ops/multiply.h"

namespace titanium::ops {
namespace {

Tensor empty_like(const Tensor& x, int64_t columns) { return at::empty({x.size(0), columns}, x.options()); }

void add_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, Parameter& weight) {
  auto [sum, is_first] = weight.open_grad_sum(grad_TO.device());
  if (has_float8_weight_grad(weight)) {
    const Tensor product = float8_weight_grad(grad_TO, x_TI, weight, sum.scalar_type());
    is_first ? sum.copy_(product) : sum.add_(product);
  } else {
    multiply(sum, grad_TO.t(), x_TI, is_first ? Tensor() : sum);
  }
}

}  // namespace

Tensor linear_forward(const Tensor& x_TI, const Parameter& weight) {
  if (weight.float8) return float8_output(x_TI, weight);
  const Tensor w_OI = weight.in(x_TI.scalar_type()), y_TO = empty_like(x_TI, w_OI.size(0));
  multiply(y_TO, x_TI, w_OI.t());
  return y_TO;
}

Tensor linear_input_grad(const Tensor& grad_TO, const Parameter& weight) {
  if (weight.float8) return float8_input_grad(grad_TO, weight);
  const Tensor w_OI = weight.in(grad_TO.scalar_type()), grad_TI = empty_like(grad_TO, w_OI.size(1));
  multiply(grad_TI, grad_TO, w_OI);
  return grad_TI;
}

void write_input_grad(Tensor into_TI, const Tensor& grad_TO, const Parameter& weight) {
  if (weight.float8) return void(into_TI.copy_(float8_input_grad(grad_TO, weight)));
  multiply(into_TI, grad_TO, weight.in(grad_TO.scalar_type()));
}

void add_input_grad(Tensor& sum_TI, const Tensor& grad_TO, const Parameter& weight) {
  if (weight.float8) return void(sum_TI.add_(float8_input_grad(grad_TO, weight)));
  multiply(sum_TI, grad_TO, weight.in(grad_TO.scalar_type()), sum_TI);
}

void accumulate_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, Parameter& weight) {
  if (weight.put_off == nullptr) return add_weight_grad(grad_TO, x_TI, weight);
  weight.put_off->push_back([=, &weight] {
    const c10::AutoGradMode no_grad(false);
    add_weight_grad(grad_TO, x_TI, weight);
  });
}

Tensor linear(const Tensor& x_TI, Parameter& weight) {
  Tensor y_TO;
  {
    const c10::AutoGradMode no_grad(false);
    y_TO = linear_forward(x_TI, weight);
  }
  record({x_TI}, {y_TO}, [x_TI = x_TI.detach(), &weight](const Tensors& grads) -> Tensors {
    accumulate_weight_grad(grads[0], x_TI, weight);
    return {linear_input_grad(grads[0], weight)};
  });
  return y_TO;
}

Tensor linear_residual_forward(const Tensor& x_TI, const Parameter& weight, const Tensor& residual_tO,
                               RowExchange& exchange) {
  if (exchange.ranks() == 1 && !weight.float8) {
    const Tensor y_tO = at::empty(residual_tO.sizes(), residual_tO.options());
    multiply(y_tO, x_TI, weight.in(x_TI.scalar_type()).t(), residual_tO);
    return y_tO;
  }
  const auto product = [&](const Tensors& rows) { return linear_forward(rows[0], weight); };
  return scatter_mapped(exchange, {x_TI}, product)().add_(residual_tO);
}

Tensor linear_residual(const Tensor& x_TI, Parameter& weight, const Tensor& residual_tO, RowExchange& exchange) {
  Tensor y_tO;
  {
    const c10::AutoGradMode no_grad(false);
    y_tO = linear_residual_forward(x_TI, weight, residual_tO, exchange);
  }
  record({x_TI, residual_tO}, {y_tO}, [x_TI = x_TI.detach(), &weight, &exchange](const Tensors& grads) -> Tensors {
    const auto input_grad = [&](const Tensors& rows) -> Tensors { return {linear_input_grad(rows[0], weight)}; };
    Tensor grad_TO;
    const Tensor grad_TI = map_gathered(exchange, grads[0].contiguous(), input_grad, &grad_TO)[0];
    accumulate_weight_grad(grad_TO, x_TI, weight);
    return {grad_TI, grads[0]};
  });
  return y_tO;
}

}  // namespace titanium::ops
