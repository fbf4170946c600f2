#include "titanium/ops/modulated_norm.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"

namespace titanium::ops {
namespace {

constexpr double kEps = 1e-6;

bool uses_kernel(const Tensor& x_BSD) {
  return uses_kernels(x_BSD) && kernels::has_modulated_norm(element_type(x_BSD), x_BSD.size(2));
}

Tensor normalise(const Tensor& x_BSD, Tensor& mean, Tensor& rstd) {
  Tensor normalised;
  std::tie(normalised, mean, rstd) = at::native_layer_norm(x_BSD, {x_BSD.size(2)}, {}, {}, kEps);
  return normalised;
}

Tensor one_more_than(const Tensor& scale_BD) { return (scale_BD + 1).unsqueeze(1); }

Tensor modulate(const Tensor& normalised_BSD, const ShiftAndScale& modulation) {
  return at::addcmul(modulation.shift_BD.unsqueeze(1), normalised_BSD, one_more_than(modulation.scale_BD));
}

Tensor forward_kernel(const ModulatedNorm& norm) {
  const Tensor& x = norm.x_BSD;
  const Tensor y_BSD = at::empty_like(x);
  launch(kernels::ModulatedNormForwardArgs{.type = element_type(x),
                                           .x = x.const_data_ptr(),
                                           .shift = norm.modulation.shift_BD.const_data_ptr(),
                                           .scale = norm.modulation.scale_BD.const_data_ptr(),
                                           .y = y_BSD.mutable_data_ptr(),
                                           .mean = norm.mean.mutable_data_ptr<float>(),
                                           .rstd = norm.rstd.mutable_data_ptr<float>(),
                                           .rows = x.size(0) * x.size(1),
                                           .rows_of_sample = x.size(1),
                                           .dim = x.size(2),
                                           .eps = static_cast<float>(kEps)});
  return y_BSD;
}

ModulatedNormGrads backward_kernel(const Tensor& grad, const ModulatedNorm& saved, const Tensor& around) {
  const Tensor &x = saved.x_BSD, &scale = saved.modulation.scale_BD;
  ModulatedNormGrads found = {at::empty_like(x), at::empty_like(scale), at::empty_like(scale)};
  const kernels::ModulatedNormBackwardArgs args{.type = element_type(x),
                                                .dy = grad.const_data_ptr(),
                                                .x = x.const_data_ptr(),
                                                .mean = saved.mean.const_data_ptr<float>(),
                                                .rstd = saved.rstd.const_data_ptr<float>(),
                                                .scale = scale.const_data_ptr(),
                                                .residual_grad = around.defined() ? around.const_data_ptr() : nullptr,
                                                .dx = found.x_BSD.mutable_data_ptr(),
                                                .dshift = found.shift_BD.mutable_data_ptr(),
                                                .dscale = found.scale_BD.mutable_data_ptr(),
                                                .scratch = nullptr,
                                                .rows = x.size(0) * x.size(1),
                                                .rows_of_sample = x.size(1),
                                                .dim = x.size(2)};
  launch_with_scratch(args, x);
  return found;
}

}  // namespace

Tensor modulated_norm(const Tensor& x_BSD, const ShiftAndScale& modulation, ModulatedNorm& saved) {
  saved = {x_BSD.detach(), {}, {}, {modulation.shift_BD.detach(), modulation.scale_BD.detach()}};
  if (!uses_kernel(x_BSD)) return modulate(normalise(x_BSD, saved.mean, saved.rstd), saved.modulation);
  saved.x_BSD = saved.x_BSD.contiguous();
  for (Tensor* statistic : {&saved.mean, &saved.rstd}) {
    *statistic = at::empty({x_BSD.size(0), x_BSD.size(1)}, x_BSD.options().dtype(at::kFloat));
  }
  return forward_kernel(saved);
}

Tensor modulated_norm_again(const ModulatedNorm& saved) {
  if (uses_kernel(saved.x_BSD)) return forward_kernel(saved);  // its statistics are written again, with the same bits
  Tensor mean, rstd;
  return modulate(normalise(saved.x_BSD, mean, rstd), saved.modulation);
}

ModulatedNormGrads modulated_norm_backward(const Tensor& grad_BSD, const ModulatedNorm& saved,
                                           const Tensor& around_BSD) {
  if (uses_kernel(saved.x_BSD)) {
    return backward_kernel(grad_BSD.contiguous(), saved, around_BSD.defined() ? around_BSD.contiguous() : Tensor());
  }
  Tensor mean, rstd;
  const Tensor normalised = normalise(saved.x_BSD, mean, rstd);
  const Tensor grad_norm = grad_BSD * one_more_than(saved.modulation.scale_BD);
  const Tensor grad_x = std::get<0>(at::native_layer_norm_backward(
      grad_norm, saved.x_BSD, {saved.x_BSD.size(2)}, saved.mean, saved.rstd, {}, {}, {true, false, false}));
  return {around_BSD.defined() ? grad_x.add_(around_BSD) : grad_x, grad_BSD.sum(1), (grad_BSD * normalised).sum(1)};
}

}  // namespace titanium::ops
