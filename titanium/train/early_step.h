// The optimizer inside the backward: optimizer.early_step_in_backward.
#pragma once

#include "titanium/nn/unit.h"
#include "titanium/optim/optimizer.h"

namespace titanium::train {

// Updates the parameters of each unit as soon as its backward is done, and frees their gradients: those of one unit at
// a time are there. Nothing is clipped, because the norm of all gradients is known only afterwards; a unit whose
// gradients are not finite is left alone. The same bits as an update after the backward. For one rank and one
// micro-batch a step.
class EarlyStep {
 public:
  // Encloses the units, which outlive it as the optimizer does, in hooks that its destructor takes away again.
  EarlyStep(const std::vector<nn::Unit*>& units, optim::Optimizer& optimizer);
  ~EarlyStep();
  EarlyStep(const EarlyStep&) = delete;
  EarlyStep& operator=(const EarlyStep&) = delete;

  // Before the forward of a step.
  void begin(double lr) { lr_ = lr, squares_ = Tensor(); }
  // After its backward: updates what no unit's end has told of, and returns the norm of all gradients.
  Tensor finish();

 private:
  void update(const std::vector<Parameter*>& parameters);

  std::vector<nn::Unit*> units_;
  std::vector<std::shared_ptr<nn::UnitHook>> hooks_;  // its own
  optim::Optimizer& optimizer_;
  double lr_ = 0;
  Tensor squares_;  // sum over the gradients that have been used
};

}  // namespace titanium::train
