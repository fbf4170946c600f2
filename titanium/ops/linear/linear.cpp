#include "titanium/ops/linear/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/ops/linear/multiply.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

void add_weight_grad(const LinearGrad& grad_TO, const LinearInput& x_TI, Parameter& weight) {
  auto [sum, is_first] = weight.open_grad_sum(grad_TO.tensor().device());
  const Tensor added = is_first ? Tensor() : sum;
  if (has_float8_weight_grad(weight)) return float8_weight_grad(sum, grad_TO, x_TI, weight, added);
  multiply(sum, grad_TO.tensor().t(), x_TI.tensor(), added);
}

void input_grad(const Tensor& out_TI, const LinearGrad& grad_TO, const Parameter& weight, const Tensor& added_TI = {}) {
  if (weight.float8) return float8_input_grad(out_TI, grad_TO, weight, added_TI);
  const Tensor& grad = grad_TO.tensor();
  multiply(out_TI, grad, weight.in(grad.scalar_type()), added_TI);
}

void output(const Tensor& out_TO, const LinearInput& x_TI, const Parameter& weight, const Tensor& added_TO = {}) {
  if (weight.float8) return float8_output(out_TO, x_TI, weight, added_TO);
  const Tensor& x = x_TI.tensor();
  multiply(out_TO, x, weight.in(x.scalar_type()).t(), added_TO);
}

void add_column_sums(const Tensor& grad_TO, Parameter& bias) {
  const Tensor grad = grad_TO.stride(1) == 1 ? grad_TO : grad_TO.contiguous();
  const auto [sum, is_first] = bias.open_grad_sum(grad.device());
  const kernels::ColumnSumsArgs args{.type = element_type(grad),
                                     .sum_type = element_type(sum),
                                     .x = grad.const_data_ptr(),
                                     .x_stride = grad.stride(0),
                                     .sums = sum.mutable_data_ptr(),
                                     .accumulate = !is_first,
                                     .scratch = nullptr,
                                     .rows = grad.size(0),
                                     .dim = grad.size(1)};
  launch_with_scratch(args, grad);
}

Tensor rows_like(const Tensor& x, int64_t columns) { return at::empty({x.size(0), columns}, x.options()); }

}  // namespace

Tensor linear_forward(const LinearInput& x_TI, const Parameter& weight, const Parameter* bias) {
  const Tensor y_TO = rows_like(x_TI.tensor(), weight.part.shape[0]);
  if (bias != nullptr && !weight.float8) {
    const Tensor& x = x_TI.tensor();
    multiply_with_bias(y_TO, x, weight.in(x.scalar_type()).t(), bias->in(y_TO.scalar_type()));
    return y_TO;
  }
  output(y_TO, x_TI, weight);
  if (bias != nullptr) y_TO.add_(bias->in(y_TO.scalar_type()));
  return y_TO;
}

Tensor linear_input_grad(const LinearGrad& grad_TO, const Parameter& weight) {
  const Tensor grad_TI = rows_like(grad_TO.tensor(), weight.part.shape[1]);
  input_grad(grad_TI, grad_TO, weight);
  return grad_TI;
}

void write_input_grad(const Tensor& into_TI, const LinearGrad& grad_TO, const Parameter& weight) {
  input_grad(into_TI, grad_TO, weight);
}

void add_input_grad(const Tensor& sum_TI, const LinearGrad& grad_TO, const Parameter& weight) {
  input_grad(sum_TI, grad_TO, weight, sum_TI);
}

void accumulate_weight_grad(const LinearGrad& grad_TO, const LinearInput& x_TI, Parameter& weight) {
  if (weight.deferred == nullptr) return add_weight_grad(grad_TO, x_TI, weight);
  weight.deferred->emplace_back([=, &weight] {
    const c10::AutoGradMode no_grad(false);
    add_weight_grad(grad_TO, x_TI, weight);
  });
}

void accumulate_bias_grad(const Tensor& grad_TO, Parameter* bias) {
  if (bias == nullptr) return;
  if (uses_kernels(grad_TO)) return add_column_sums(grad_TO, *bias);
  const Dtype sums = grad_TO.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  bias->accumulate(at::sum(grad_TO, at::IntArrayRef{0}, /*keepdim=*/false, sums));
}

Tensor linear(const Tensor& x_TI, Parameter& weight) {
  const TraceScope scope("linear");
  LinearInput x(x_TI.detach());
  Tensor y_TO;
  {
    const c10::AutoGradMode no_grad(false);
    y_TO = linear_forward(x, weight);
  }
  x.drop_rows();
  record({x_TI}, {y_TO}, [x, &weight](const Tensors& grads) -> Tensors {
    const LinearGrad grad(grads[0]);
    accumulate_weight_grad(grad, x, weight);
    return {linear_input_grad(grad, weight)};
  });
  return y_TO;
}

Tensor linear_residual_forward(const LinearInput& x_TI, const Parameter& weight, const Tensor& residual_tO,
                               RowExchange& exchange) {
  if (exchange.ranks() == 1) {
    const Tensor y_tO = at::empty(residual_tO.sizes(), residual_tO.options());
    output(y_tO, x_TI, weight, residual_tO);
    return y_tO;
  }
  const auto product = [&](const Tensors& rows) { return linear_forward(x_TI.of(rows[0]), weight); };
  return scatter_mapped(exchange, {x_TI.tensor()}, product)().add_(residual_tO);
}

Tensor linear_residual(const Tensor& x_TI, Parameter& weight, const Tensor& residual_tO, RowExchange& exchange,
                       Parameter* bias) {
  const TraceScope scope("linear_residual");
  LinearInput x(x_TI.detach());
  Tensor y_tO;
  {
    const c10::AutoGradMode no_grad(false);
    y_tO = linear_residual_forward(x, weight, residual_tO, exchange);
    if (bias != nullptr) y_tO.add_(bias->in(y_tO.scalar_type()));
  }
  x.drop_rows();
  record({x_TI, residual_tO}, {y_tO}, [x, &weight, &exchange, bias](const Tensors& grads) -> Tensors {
    const LinearGrad grad(grads[0].contiguous());
    const auto input_grad = [&](const Tensors& rows) -> Tensors {
      return {linear_input_grad(grad.of(rows[0]), weight)};
    };
    Tensor grad_TO;
    const Tensor grad_TI = map_gathered(exchange, grad.tensor(), input_grad, &grad_TO)[0];
    accumulate_weight_grad(grad.of(grad_TO), x, weight);
    accumulate_bias_grad(grad.tensor(), bias);
    return {grad_TI, grads[0]};
  });
  return y_tO;
}

}  // namespace titanium::ops
