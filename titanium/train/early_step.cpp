#include "titanium/train/early_step.h"

#include "titanium/optim/grad_norm.h"
#include "titanium/parallel/grad_reduction.h"
#include "titanium/parallel/placement.h"
#include "titanium/tensor/trace_scope.h"

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

EarlyStep::EarlyStep(const std::vector<nn::Unit*>& units, optim::Optimizer& optimizer,
                     parallel::DataParallel& data_parallel, const parallel::Mesh& mesh)
    : units_(units), optimizer_(optimizer), data_parallel_(data_parallel), mesh_(mesh) {
  if (data_parallel.when_reduced([this](const auto& parameters) { update_complete(parameters); })) return;
  for (nn::Unit* unit : units_) {
    if (unit->role == nn::UnitRole::kRoot) continue;  // shared by others: complete at the very end
    hooks_.push_back(std::make_shared<AfterBackward>([this, unit] { update_complete(unit->parameters); }));
    unit->enclose(hooks_.back());
  }
}

EarlyStep::~EarlyStep() {
  data_parallel_.when_reduced(nullptr);
  for (nn::Unit* unit : units_) {
    std::erase_if(unit->hooks, [&](const auto& hook) { return std::ranges::find(hooks_, hook) != hooks_.end(); });
  }
}

void EarlyStep::begin(double lr) {
  lr_ = lr;
  squares_.clear();
}

void EarlyStep::update_complete(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> complete = parameters;
  std::erase_if(complete, [&](const Parameter* p) { return !axes_to_sum(*p, mesh_.dims()).empty(); });
  update(complete);
}

void EarlyStep::update(const std::vector<Parameter*>& parameters) {
  if (parameters.empty()) return;
  Tensor sum;
  for (Parameter* parameter : parameters) {
    const Tensor squares = optim::sum_of_squares(std::vector{parameter});
    squares_[parameter] = squares;
    sum = sum.defined() ? sum + squares : squares;
  }
  const TraceScope scope("optimizer");
  optimizer_.step_some(parameters, lr_, sum.sqrt());
  for (Parameter* parameter : parameters) parameter->zero_grad();
}

Tensor EarlyStep::finish() {
  std::vector<Parameter*> all;
  for (const nn::Unit* unit : units_) {
    std::vector<Parameter*> left = unit->parameters;
    std::erase_if(left, [](const Parameter* parameter) { return !parameter->grad.defined(); });
    update(left);
    all.insert(all.end(), unit->parameters.begin(), unit->parameters.end());
  }
  return parallel::global_grad_norm(all, mesh_, [&](std::span<Parameter* const> counted) {
    Tensor sum;
    for (const Parameter* parameter : counted) {
      const auto squares = squares_.find(parameter);
      if (squares != squares_.end()) sum = sum.defined() ? sum + squares->second : squares->second;
    }
    return sum.defined() ? sum : optim::sum_of_squares(counted);  // zero: nobody had a gradient
  });
}

}  // namespace titanium::train
