#include "titanium/ops/rms_norm.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

namespace titanium::ops {

RmsNormOutput rms_norm_forward(const Tensor& x_TD, const Parameter& weight, double eps) {
  const Tensor x = x_TD.to(at::kFloat);
  const Tensor rstd_T1 = at::mean(at::mul(x, x), {1}, true).add_(eps).rsqrt_();
  return {rms_norm_apply(x_TD, rstd_T1, weight), rstd_T1};
}

Tensor rms_norm_apply(const Tensor& x_TD, const Tensor& rstd_T1, const Parameter& weight) {
  return at::mul(x_TD.to(at::kFloat), rstd_T1).mul_(weight.in(at::kFloat)).to(x_TD.scalar_type());
}

Tensor rms_norm_backward(const Tensor& grad_TD, const Tensor& x_TD, const Tensor& rstd_T1, Parameter& weight) {
  const Tensor normalised = at::mul(x_TD.to(at::kFloat), rstd_T1);
  const Tensor grad = grad_TD.to(at::kFloat);
  weight.accumulate(at::sum(at::mul(grad, normalised), {0}));
  Tensor scaled = at::mul(grad, weight.in(at::kFloat));
  const Tensor projection_T1 = at::mean(at::mul(scaled, normalised), {1}, true);
  return scaled.sub_(normalised * projection_T1).mul_(rstd_T1).to(x_TD.scalar_type());
}

Tensor rms_norm(const Tensor& x_TD, Parameter& weight, double eps) {
  RmsNormOutput out;
  {
    const c10::AutoGradMode no_grad(false);
    out = rms_norm_forward(x_TD, weight, eps);
  }
  record({x_TD}, {out.y_TD}, [x_TD = x_TD.detach(), rstd_T1 = out.rstd_T1, &weight](const Tensors& grads) -> Tensors {
    return {rms_norm_backward(grads[0], x_TD, rstd_T1, weight)};
  });
  return out.y_TD;
}

}  // namespace titanium::ops
