#include "titanium/optim/optimizer.h"

#include <algorithm>

#include "titanium/base/error.h"

namespace titanium::optim {
namespace {

using Optimizers = std::vector<std::unique_ptr<Optimizer>>;

std::vector<Parameter*> parameters_of(const Optimizers& optimizers) {
  std::vector<Parameter*> all;
  for (const auto& optimizer : optimizers) {
    all.insert(all.end(), optimizer->parameters().begin(), optimizer->parameters().end());
  }
  return all;
}

class Together : public Optimizer {
 public:
  explicit Together(Optimizers optimizers) : Optimizer(parameters_of(optimizers)), optimizers_(std::move(optimizers)) {}

  void materialize() override {
    for (const auto& optimizer : optimizers_) optimizer->materialize();
  }
  void step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm, double max_norm) override {
    for (const auto& optimizer : optimizers_) optimizer->step_some(parameters, lr, norm, max_norm);
  }
  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all;
    for (const auto& optimizer : optimizers_) std::ranges::move(optimizer->state(), std::back_inserter(all));
    return all;
  }
  int64_t state_bytes(const Parameter& parameter, Dtype dtype) const override {
    return owner_of(parameter).state_bytes(parameter, dtype);
  }
  int64_t working_bytes() const override {
    int64_t most = 0;
    for (const auto& optimizer : optimizers_) most = std::max(most, optimizer->working_bytes());
    return most;
  }
  NamedOptions options_of(const Parameter& parameter, const LearningRate& lr) const override {
    return owner_of(parameter).options_of(parameter, lr);
  }

 private:
  const Optimizer& owner_of(const Parameter& parameter) const {
    for (const auto& optimizer : optimizers_) {
      if (std::ranges::count(optimizer->parameters(), &parameter) > 0) return *optimizer;
    }
    TI_ASSERT(false, "no optimizer has {}", parameter.fqn);
    return *optimizers_.front();
  }

  Optimizers optimizers_;
};

}  // namespace

void Optimizer::zero_grad() {
  for (Parameter* parameter : parameters_) parameter->zero_grad();
}

std::unique_ptr<Optimizer> together(Optimizers optimizers) { return std::make_unique<Together>(std::move(optimizers)); }

}  // namespace titanium::optim
