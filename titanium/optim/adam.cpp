#include "titanium/optim/adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <unordered_set>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/init.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/optim/grad_norm.h"
#include "titanium/optim/host_update.h"
#include "titanium/optim/tensor_list.h"

namespace titanium::optim {
namespace {

// A skipped update does not count.
void count_steps(const std::vector<Tensor>& steps, const Tensor& skip) {
  at::_foreach_add_(steps, 1);
  if (skip.defined()) at::_foreach_sub_(steps, std::vector<Tensor>(steps.size(), skip));
}

bool updates_in_kernel(const Parameter& parameter) {
  return ops::uses_kernels(parameter.value) && ops::uses_kernels(parameter.grad);
}

// The copy in bfloat16 that the kernel writes beside the fp32 parameter; undefined: none.
Tensor copy_in_kernel(const Parameter& parameter) {
  const bool has_grad = parameter.grad.defined() && parameter.grad.numel() > 0;
  return has_grad && updates_in_kernel(parameter) && parameter.value.scalar_type() == at::kFloat
             ? parameter.kept_copy(at::kBFloat16)
             : Tensor();
}

std::vector<Parameter*> all_parameters(const std::vector<AdamGroup>& groups) {
  std::vector<Parameter*> all;
  for (const AdamGroup& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

}  // namespace

// One update of parameters of one group.
class Adam::Update {
 public:
  Update(const AdamOptions& options, double lr, const Tensor& norm, double max_norm);
  void apply(const Slots& slots) const;

 private:
  // What the norm decides, on the device: fp32 scalars. Without a norm they are undefined.
  struct Decisions {
    Tensor scale;  // of the gradients
    Tensor skip;   // 1 or 0
  };
  // The entries of a slot: one, or one for each matrix of element numbers where these matter.
  std::vector<kernels::AdamWTensor> describe(const Slot& slot, const Tensor& value, const Tensor& grad) const;
  kernels::AdamWArgs arguments(const Decisions& decisions) const;
  bool rounds_stochastically(const Parameter& parameter) const;
  void apply_with_kernel(const Slots& slots) const;
  void apply_with_host(const Slots& slots) const;
  void apply_with_aten(const Slots& slots) const;

  const AdamOptions& options_;
  double lr_;
  Tensor norm_;
  double max_norm_;
  Decisions decisions_;
};

Adam::Update::Update(const AdamOptions& options, double lr, const Tensor& norm, double max_norm)
    : options_(options), lr_(lr), norm_(norm), max_norm_(max_norm) {
  if (!norm.defined()) return;
  decisions_.scale = clip_scale(norm, max_norm).to(at::kFloat);
  decisions_.skip = at::isfinite(norm).logical_not_().to(at::kFloat);
}

void Adam::Update::apply(const Slots& slots) const {
  Slots of_kernel, of_host;
  std::map<Dtype, Slots> of_aten;  // its kernels take tensors of one dtype
  for (const Slot* slot : slots) {
    const Parameter& parameter = *slot->parameter;
    // A rank may hold nothing of a small parameter.
    if (!parameter.grad.defined() || parameter.grad.numel() == 0) continue;
    const bool kernel = updates_in_kernel(parameter);
    const bool host = rounds_stochastically(parameter);
    (kernel ? of_kernel : host ? of_host : of_aten[parameter.value.scalar_type()]).push_back(slot);
  }
  if (!of_kernel.empty()) apply_with_kernel(of_kernel);
  if (!of_host.empty()) apply_with_host(of_host);
  for (const auto& [dtype, of_dtype] : of_aten) {
    std::vector<Parameter*> parameters;
    for (const Slot* slot : of_dtype) parameters.push_back(slot->parameter);
    if (norm_.defined() && std::isfinite(max_norm_)) clip_grads(parameters, max_norm_, norm_);
    apply_with_aten(of_dtype);
  }
  for (const Slot* slot : slots) {
    Parameter& parameter = *slot->parameter;
    if (copy_in_kernel(parameter).defined()) {
      parameter.value_and_copy_changed();
    } else {
      parameter.value_changed();
    }
  }
}

std::vector<kernels::AdamWTensor> Adam::Update::describe(const Slot& slot, const Tensor& value,
                                                         const Tensor& grad) const {
  const Tensor copy = copy_in_kernel(*slot.parameter);
  const kernels::AdamWTensor whole = {.parameter = value.mutable_data_ptr(),
                                      .gradient = grad.const_data_ptr(),
                                      .exp_avg = slot.exp_avg.mutable_data_ptr(),
                                      .exp_avg_sq = slot.exp_avg_sq.mutable_data_ptr(),
                                      .count = value.numel(),
                                      .parameter_type = ops::element_type(value),
                                      .gradient_type = ops::element_type(grad),
                                      .state_type = ops::element_type(slot.exp_avg),
                                      .first_chunk = 0,
                                      .step = slot.step.const_data_ptr<float>(),
                                      .copy = copy.defined() ? copy.mutable_data_ptr() : nullptr};
  if (!rounds_stochastically(*slot.parameter)) return {whole};
  std::vector<kernels::AdamWTensor> entries;
  for (const ElementNumbers& numbers : element_numbers(*slot.parameter)) {
    kernels::AdamWTensor entry = whole;
    entry.parameter = static_cast<char*>(whole.parameter) + numbers.begin * value.element_size();
    entry.gradient = static_cast<const char*>(whole.gradient) + numbers.begin * grad.element_size();
    entry.exp_avg = static_cast<char*>(whole.exp_avg) + numbers.begin * slot.exp_avg.element_size();
    entry.exp_avg_sq = static_cast<char*>(whole.exp_avg_sq) + numbers.begin * slot.exp_avg_sq.element_size();
    entry.count = numbers.elements();
    entry.random_key = ops::parameter_key(slot.parameter->fqn, *options_.rounding_seed);
    entry.random_first = numbers.first;
    entry.random_row = numbers.columns;
    entry.random_gap = numbers.row_stride - numbers.columns;
    entries.push_back(entry);
  }
  return entries;
}

kernels::AdamWArgs Adam::Update::arguments(const Decisions& decisions) const {
  const auto scalar = [](const Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; };
  return {.tensors = nullptr,
          .count = 0,
          .chunks = 0,
          .learning_rate = lr_,
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .weight_decay = options_.weight_decay,
          .decoupled = options_.decoupled,
          .step = 0,  // each tensor has its own
          .clip_scale = scalar(decisions.scale),
          .skip = scalar(decisions.skip),
          .stochastic_rounding = options_.rounding_seed.has_value()};
}

bool Adam::Update::rounds_stochastically(const Parameter& parameter) const {
  return options_.rounding_seed && parameter.value.scalar_type() == at::kBFloat16;
}

void Adam::Update::apply_with_kernel(const Slots& slots) const {
  std::vector<Tensor> grads, steps;  // live until the launch
  std::vector<kernels::AdamWTensor> entries;
  for (const Slot* slot : slots) {
    grads.push_back(slot->parameter->grad.contiguous());
    steps.push_back(slot->step);
    for (const auto& entry : describe(*slot, slot->parameter->value, grads.back())) entries.push_back(entry);
  }
  count_steps(steps, decisions_.skip);
  const auto list = upload(std::move(entries), slots.front()->parameter->value.device());
  kernels::AdamWArgs args = arguments(decisions_);
  args.tensors = list.entries();
  args.count = list.count;
  args.chunks = list.chunks;
  ops::launch(args);
}

// Parameters on a GPU (debug.reference_ops) make a trip to the host.
void Adam::Update::apply_with_host(const Slots& slots) const {
  std::vector<Tensor> steps;
  for (const Slot* slot : slots) steps.push_back(slot->step);
  count_steps(steps, decisions_.skip);
  const auto on_host = [](const Tensor& x) { return x.defined() ? x.detach().cpu() : Tensor(); };
  const Decisions decided = {on_host(decisions_.scale), on_host(decisions_.skip)};
  const kernels::AdamWArgs args = arguments(decided);
  for (const Slot* slot : slots) {
    const Tensor& value = slot->parameter->value;
    const Tensor host_value = on_host(value), grad = on_host(slot->parameter->grad).contiguous();
    const Slot host = {slot->parameter, on_host(slot->exp_avg), on_host(slot->exp_avg_sq), on_host(slot->step)};
    for (const auto& entry : describe(host, host_value, grad)) update_on_host(entry, args);
    if (value.device().is_cpu()) continue;
    value.detach().copy_(host_value);
    slot->exp_avg.copy_(host.exp_avg);
    slot->exp_avg_sq.copy_(host.exp_avg_sq);
  }
}

void Adam::Update::apply_with_aten(const Slots& slots) const {
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
  const std::optional<Tensor> skip = decisions_.skip.defined() ? std::optional(decisions_.skip) : std::nullopt;
  const auto fused = [&](auto kernel) {
    kernel(values, grads, exp_avgs, exp_avg_sqs, at::TensorList(), steps, lr_, options_.beta1, options_.beta2,
           options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
           skip);
  };
  if (options_.decoupled) {
    fused([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    fused([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
  if (skip) at::_foreach_sub_(steps, std::vector<Tensor>(steps.size(), *skip));
}

Adam::Adam(const std::vector<AdamGroup>& groups) : Optimizer(all_parameters(groups)) {
  for (const AdamGroup& group : groups) {
    groups_.push_back({group.options, group.lr_factor, {}});
    for (Parameter* parameter : group.parameters) {
      groups_.back().slots.push_back({.parameter = parameter, .exp_avg = {}, .exp_avg_sq = {}, .step = {}});
    }
  }
}

Adam::Adam(std::vector<Parameter*> parameters, const AdamOptions& options)
    : Adam(std::vector<AdamGroup>{{.parameters = std::move(parameters), .options = options}}) {}

void Adam::materialize() {
  for (Group& group : groups_) {
    for (Slot& slot : group.slots) {
      const Tensor& value = slot.parameter->value;
      TI_ASSERT(value.defined() && value.is_contiguous(), "{} is not materialised", slot.parameter->fqn);
      const auto plain = value.options().requires_grad(false);
      slot.exp_avg = at::zeros(value.sizes(), plain);
      slot.exp_avg_sq = at::zeros(value.sizes(), plain);
      slot.step = at::zeros({}, plain.dtype(at::kFloat));
    }
  }
}

void Adam::step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm, double max_norm) {
  const c10::NoGradGuard no_grad;
  const std::unordered_set<const Parameter*> wanted(parameters.begin(), parameters.end());
  for (const Group& group : groups_) {
    Slots slots;
    for (const Slot& slot : group.slots) {
      if (wanted.contains(slot.parameter)) slots.push_back(&slot);
    }
    if (!slots.empty()) Update(group.options, lr * group.lr_factor, norm, max_norm).apply(slots);
  }
}

std::vector<StateTensor> Adam::state() const {
  std::vector<StateTensor> state;
  for (const Group& group : groups_) {
    for (const Slot& slot : group.slots) {
      state.push_back({slot.parameter, "exp_avg", slot.exp_avg});
      state.push_back({slot.parameter, "exp_avg_sq", slot.exp_avg_sq});
      state.push_back({slot.parameter, "step", slot.step});
    }
  }
  return state;
}

int64_t Adam::state_bytes(const Parameter& parameter, Dtype dtype) const {
  return 2 * volume(parameter.shard.shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

NamedOptions Adam::options_of(const Parameter& parameter, const LearningRate& lr) const {
  const auto group = std::ranges::find_if(groups_, [&](const Group& candidate) {
    return std::ranges::count(candidate.slots, &parameter, &Slot::parameter) > 0;
  });
  TI_ASSERT(group != groups_.end(), "{} is in no group", parameter.fqn);
  const AdamOptions& options = group->options;
  return {
      {"lr", lr.now * group->lr_factor},
      {"betas", std::vector{options.beta1, options.beta2}},
      {"eps", options.eps},
      {"weight_decay", options.weight_decay},
      {"amsgrad", false},
      {"maximize", false},
      {"foreach", options.implementation == "foreach"},
      {"capturable", false},
      {"differentiable", false},
      {"fused", options.implementation == "fused"},
      {"decoupled_weight_decay", options.decoupled},
      {"initial_lr", lr.initial * group->lr_factor},
  };
}

}  // namespace titanium::optim
