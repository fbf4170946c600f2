#include "titanium/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "titanium/ops/float8.h"

namespace titanium::ops {
namespace {

// CUDA's products of 16-bit numbers can be given, and added to, in fp32.
bool adds_up_in_float(const Tensor& grad, const Tensor& sum) {
  return grad.is_cuda() && c10::elementSize(grad.scalar_type()) == 2 && sum.scalar_type() == at::kFloat;
}

void add_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, Parameter& weight) {
  auto [sum, is_first] = weight.open_grad_sum(grad_TO.device());
  const Tensor grad_OT = grad_TO.t();
  if (has_float8_weight_grad(weight)) {
    const Tensor product = float8_weight_grad(grad_TO, x_TI, weight, sum.scalar_type());
    is_first ? sum.copy_(product) : sum.add_(product);
  } else if (sum.scalar_type() == grad_TO.scalar_type()) {
    is_first ? at::mm_out(sum, grad_OT, x_TI) : sum.addmm_(grad_OT, x_TI);
  } else if (adds_up_in_float(grad_TO, sum)) {
    is_first ? at::mm_out(sum, grad_OT, x_TI, at::kFloat) : at::addmm_out(sum, sum, grad_OT, x_TI, at::kFloat);
  } else {
    const Tensor product = at::mm(grad_OT, x_TI);
    is_first ? sum.copy_(product) : sum.add_(product);
  }
}

}  // namespace

Tensor linear_forward(const Tensor& x_TI, const Parameter& weight) {
  if (weight.float8) return float8_output(x_TI, weight);
  return at::mm(x_TI, weight.in(x_TI.scalar_type()).t());
}

Tensor linear_input_grad(const Tensor& grad_TO, const Parameter& weight) {
  if (weight.float8) return float8_input_grad(grad_TO, weight);
  return at::mm(grad_TO, weight.in(grad_TO.scalar_type()));
}

void write_input_grad(Tensor into_TI, const Tensor& grad_TO, const Parameter& weight) {
  if (weight.float8) return void(into_TI.copy_(float8_input_grad(grad_TO, weight)));
  at::mm_out(into_TI, grad_TO, weight.in(grad_TO.scalar_type()));
}

void add_input_grad(Tensor& sum_TI, const Tensor& grad_TO, const Parameter& weight) {
  if (weight.float8) return void(sum_TI.add_(float8_input_grad(grad_TO, weight)));
  sum_TI.addmm_(grad_TO, weight.in(grad_TO.scalar_type()));
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
    return at::addmm(residual_tO, x_TI, weight.in(x_TI.scalar_type()).t());
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
