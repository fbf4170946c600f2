#include "titanium/train/early_step.h"

#include "titanium/optim/grad_norm.h"

namespace titanium::train {
namespace {

class AfterBackward : public nn::UnitHook {
 public:
  explicit AfterBackward(std::function<void()> update) : update_(std::move(update)) {}
  void after_backward() override { update_(); }

 private:
  std::function<void()> update_;
};

}  // namespace

EarlyStep::EarlyStep(const std::vector<nn::Unit*>& units, optim::Optimizer& optimizer)
    : units_(units), optimizer_(optimizer) {
  for (nn::Unit* unit : units_) {
    if (unit->role == nn::UnitRole::kRoot) continue;  // shared by others: complete at the very end
    hooks_.push_back(std::make_shared<AfterBackward>([this, unit] { update(unit->parameters); }));
    unit->enclose(hooks_.back());
  }
}

EarlyStep::~EarlyStep() {
  for (nn::Unit* unit : units_) {
    std::erase_if(unit->hooks, [&](const auto& hook) { return std::ranges::find(hooks_, hook) != hooks_.end(); });
  }
}

void EarlyStep::update(const std::vector<Parameter*>& parameters) {
  const Tensor squares = optim::sum_of_squares(parameters);
  optimizer_.step_some(parameters, lr_, squares.sqrt());
  squares_ = squares_.defined() ? squares_ + squares : squares;
  for (Parameter* parameter : parameters) parameter->zero_grad();
}

Tensor EarlyStep::finish() {
  for (const nn::Unit* unit : units_) {
    const bool waits = std::ranges::any_of(unit->parameters, [](const Parameter* p) { return p->grad.defined(); });
    if (waits) update(unit->parameters);
  }
  return squares_.sqrt();
}

}  // namespace titanium::train
