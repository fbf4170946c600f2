#include "titanium/ops/rms_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

Tensor contiguous_or_undefined(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

bool uses_kernels(const Tensor& x_TD, const Parameter& weight) {
  return ops::uses_kernels(x_TD) && ops::uses_kernels(weight.as_stored());
}

RmsNormOutput forward_kernel(const Tensor& x_TD, const Tensor& weight_D, double eps, bool with_amax) {
  RmsNormOutput out = {at::empty_like(x_TD), at::empty({x_TD.size(0), 1}, x_TD.options().dtype(at::kFloat)), {}};
  if (with_amax) out.amax = zero_beside(x_TD);
  launch(kernels::RmsNormForwardArgs{.type = element_type(x_TD),
                                     .weight_type = element_type(weight_D),
                                     .x = x_TD.const_data_ptr(),
                                     .weight = weight_D.const_data_ptr(),
                                     .y = out.y_TD.mutable_data_ptr(),
                                     .rstd = out.rstd_T1.mutable_data_ptr<float>(),
                                     .rows = x_TD.size(0),
                                     .dim = x_TD.size(1),
                                     .eps = static_cast<float>(eps),
                                     .amax = float_memory(out.amax)});
  return out;
}

Tensor apply_kernel(const Tensor& x_TD, const Tensor& rstd_T1, const Tensor& weight_D) {
  const Tensor y_TD = at::empty_like(x_TD);
  launch(kernels::RmsNormApplyArgs{.type = element_type(x_TD),
                                   .weight_type = element_type(weight_D),
                                   .x = x_TD.const_data_ptr(),
                                   .rstd = rstd_T1.const_data_ptr<float>(),
                                   .weight = weight_D.const_data_ptr(),
                                   .y = y_TD.mutable_data_ptr(),
                                   .rows = x_TD.size(0),
                                   .dim = x_TD.size(1)});
  return y_TD;
}

// Writes y, if it is wanted, over the gradient.
Tensor backward_kernel(const Tensor& grad_TD, const Tensor& x_TD, const Tensor& rstd_T1, Parameter& weight,
                       const Tensor& around_TD, bool with_output = false) {
  const Tensor weight_D = weight.as_stored(), dx_TD = at::empty_like(x_TD);
  const auto [dweight, is_first] = weight.open_grad_sum(x_TD.device());
  const kernels::RmsNormBackwardArgs args{.type = element_type(x_TD),
                                          .weight_type = element_type(weight_D),
                                          .dweight_type = element_type(dweight),
                                          .dy = grad_TD.const_data_ptr(),
                                          .x = x_TD.const_data_ptr(),
                                          .rstd = rstd_T1.const_data_ptr<float>(),
                                          .weight = weight_D.const_data_ptr(),
                                          .residual_grad = around_TD.defined() ? around_TD.const_data_ptr() : nullptr,
                                          .dx = dx_TD.mutable_data_ptr(),
                                          .dweight = dweight.mutable_data_ptr(),
                                          .accumulate_dweight = !is_first,
                                          .scratch = nullptr,
                                          .rows = x_TD.size(0),
                                          .dim = x_TD.size(1),
                                          .y = with_output ? grad_TD.mutable_data_ptr() : nullptr};
  launch_with_scratch(args, x_TD);
  return dx_TD;
}

}  // namespace

RmsNormOutput rms_norm_forward(const Tensor& x_TD, const Parameter& weight, double eps, bool with_amax) {
  if (uses_kernels(x_TD, weight)) return forward_kernel(x_TD.contiguous(), weight.as_stored(), eps, with_amax);
  const Tensor x = x_TD.to(at::kFloat);
  const Tensor rstd_T1 = at::mean(at::mul(x, x), {1}, true).add_(eps).rsqrt_();
  return {rms_norm_apply(x_TD, rstd_T1, weight), rstd_T1, {}};
}

Tensor rms_norm_apply(const Tensor& x_TD, const Tensor& rstd_T1, const Parameter& weight) {
  if (uses_kernels(x_TD, weight)) return apply_kernel(x_TD.contiguous(), rstd_T1, weight.as_stored());
  return at::mul(x_TD.to(at::kFloat), rstd_T1).mul_(weight.in(at::kFloat)).to(x_TD.scalar_type());
}

Tensor rms_norm_backward(const Tensor& grad_TD, const Tensor& x_TD, const Tensor& rstd_T1, Parameter& weight,
                         const Tensor& around_TD) {
  if (uses_kernels(x_TD, weight)) {
    return backward_kernel(grad_TD.contiguous(), x_TD.contiguous(), rstd_T1, weight,
                           contiguous_or_undefined(around_TD));
  }
  const Tensor normalised = at::mul(x_TD.to(at::kFloat), rstd_T1);
  const Tensor grad = grad_TD.to(at::kFloat);
  weight.accumulate(at::sum(at::mul(grad, normalised), {0}));
  Tensor scaled = at::mul(grad, weight.in(at::kFloat));
  const Tensor projection_T1 = at::mean(at::mul(scaled, normalised), {1}, true);
  Tensor dx_TD = scaled.sub_(normalised * projection_T1).mul_(rstd_T1).to(x_TD.scalar_type());
  return around_TD.defined() ? dx_TD.add_(around_TD) : dx_TD;
}

RmsNormGradAndOutput rms_norm_backward_with_output(const Tensor& grad_TD, const Tensor& x_TD, const Tensor& rstd_T1,
                                                   Parameter& weight, const Tensor& around_TD) {
  if (!uses_kernels(x_TD, weight)) {
    const Tensor y_TD = rms_norm_apply(x_TD, rstd_T1, weight);
    return {rms_norm_backward(grad_TD, x_TD, rstd_T1, weight, around_TD), y_TD};
  }
  const Tensor y_TD = grad_TD.contiguous();
  return {backward_kernel(y_TD, x_TD.contiguous(), rstd_T1, weight, contiguous_or_undefined(around_TD),
                          /*with_output=*/true),
          y_TD};
}

Tensor rms_norm(const Tensor& x_TD, Parameter& weight, double eps) {
  const TraceScope scope("rms_norm");
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
