#include "titanium/optim/adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"

namespace titanium::optim {

Adam::Adam(std::vector<Parameter*> parameters, const AdamOptions& options) : options_(options) {
  slots_.reserve(parameters.size());
  for (Parameter* parameter : parameters) {
    const Tensor& value = parameter->value;
    TI_ASSERT(value.defined() && value.is_contiguous(), "{} is not materialised", parameter->fqn);
    const auto plain = value.options().requires_grad(false);
    slots_.push_back({.parameter = parameter,
                      .exp_avg = at::zeros(value.sizes(), plain),
                      .exp_avg_sq = at::zeros(value.sizes(), plain),
                      .step = at::zeros({}, plain.dtype(at::kFloat))});
  }
}

void Adam::step(double lr, const Tensor& skip_unless_finite) {
  std::optional<Tensor> skip;  // 1 or 0, as the fused kernels want it
  if (skip_unless_finite.defined()) skip = at::isfinite(skip_unless_finite).logical_not().to(at::kFloat);
  // The fused kernels take tensors of one dtype on one device.
  std::map<std::pair<Device, Dtype>, std::vector<const Slot*>, decltype([](const auto& a, const auto& b) {
             return std::tuple(a.first.type(), a.first.index(), a.second) <
                    std::tuple(b.first.type(), b.first.index(), b.second);
           })>
      groups;
  for (const Slot& slot : slots_) {
    const Parameter& parameter = *slot.parameter;
    // A rank may hold nothing of a small parameter.
    if (parameter.grad.defined() && parameter.grad.numel() > 0)
      groups[{parameter.value.device(), parameter.value.scalar_type()}].push_back(&slot);
  }
  for (const auto& [kind, slots] : groups) update(slots, lr, skip);
}

void Adam::update(const std::vector<const Slot*>& slots, double lr, const std::optional<Tensor>& skip) {
  const c10::NoGradGuard no_grad;
  std::vector<Tensor> values, grads, exp_avgs, exp_avg_sqs, steps;
  for (const Slot* slot : slots) {
    const Parameter& parameter = *slot->parameter;
    TI_ASSERT(parameter.grad.scalar_type() == parameter.value.scalar_type(), "gradient of {} has another dtype",
              parameter.fqn);
    values.push_back(parameter.value);
    grads.push_back(parameter.grad.contiguous());  // the kernels walk raw memory
    exp_avgs.push_back(slot->exp_avg);
    exp_avg_sqs.push_back(slot->exp_avg_sq);
    steps.push_back(slot->step);
  }
  at::_foreach_add_(steps, 1);
  const auto fused = [&](auto kernel) {
    kernel(values, grads, exp_avgs, exp_avg_sqs, at::TensorList(), steps, lr, options_.beta1, options_.beta2,
           options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
           skip);
  };
  if (options_.decoupled) {
    fused([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    fused([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
  if (skip) at::_foreach_sub_(steps, std::vector<Tensor>(steps.size(), *skip));
  for (const Slot* slot : slots) slot->parameter->value_changed();
}

void Adam::zero_grad() {
  for (const Slot& slot : slots_) slot.parameter->zero_grad();
}

std::vector<StateTensor> Adam::state() const {
  std::vector<StateTensor> state;
  state.reserve(3 * slots_.size());
  for (const Slot& slot : slots_) {
    state.push_back({slot.parameter, "exp_avg", slot.exp_avg});
    state.push_back({slot.parameter, "exp_avg_sq", slot.exp_avg_sq});
    state.push_back({slot.parameter, "step", slot.step});
  }
  return state;
}

}  // namespace titanium::optim
