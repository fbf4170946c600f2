#include "titanium/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace titanium::ops {

Tensor linear_forward(const Tensor& x_TI, const Parameter& weight) {
  return at::mm(x_TI, weight.in(x_TI.scalar_type()).t());
}

Tensor linear_input_grad(const Tensor& grad_TO, const Parameter& weight) {
  return at::mm(grad_TO, weight.in(grad_TO.scalar_type()));
}

void add_input_grad(Tensor& sum_TI, const Tensor& grad_TO, const Parameter& weight) {
  sum_TI.addmm_(grad_TO, weight.in(grad_TO.scalar_type()));
}

void accumulate_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, Parameter& weight) {
  if (weight.grad.defined() && weight.grad.scalar_type() == grad_TO.scalar_type()) {
    weight.grad.addmm_(grad_TO.t(), x_TI);
  } else {
    weight.accumulate(at::mm(grad_TO.t(), x_TI));
  }
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

Tensor linear_residual(const Tensor& x_TI, Parameter& weight, const Tensor& residual_TO) {
  Tensor y_TO;
  {
    const c10::AutoGradMode no_grad(false);
    y_TO = at::addmm(residual_TO, x_TI, weight.in(x_TI.scalar_type()).t());
  }
  record({x_TI, residual_TO}, {y_TO}, [x_TI = x_TI.detach(), &weight](const Tensors& grads) -> Tensors {
    accumulate_weight_grad(grads[0], x_TI, weight);
    return {linear_input_grad(grads[0], weight), grads[0]};
  });
  return y_TO;
}

}  // namespace titanium::ops
