// The optimizer inside the backward: optimizer.early_step_in_backward.
#pragma once

#include <map>

#include "titanium/nn/unit.h"
#include "titanium/optim/optimizer.h"
#include "titanium/parallel/data_parallel/data_parallel.h"
#include "titanium/parallel/mesh.h"

namespace titanium::train {

// Updates the parameters of each unit as soon as their gradients are complete and frees these: after the unit's
// backward, or with data parallelism when the sum over its ranks is there. Gradients that are summed over other axes
// (of norms, with tensor parallelism) are small and wait for the end. Nothing is clipped, because the norm of all
// gradients is known only afterwards; where the gradients that a rank holds of a unit are not finite, that rank leaves
// its part of the unit alone. The same bits as an update after the backward. For one micro-batch a step.
class EarlyStep {
 public:
  // Takes over data parallelism's `when_reduced`, or encloses the units in hooks that its destructor takes away again.
  // All outlive it.
  EarlyStep(const std::vector<nn::Unit*>& units, optim::Optimizer& optimizer, parallel::DataParallel& data_parallel,
            const parallel::Mesh& mesh);
  ~EarlyStep();
  EarlyStep(const EarlyStep&) = delete;
  EarlyStep& operator=(const EarlyStep&) = delete;

  // Before the forward of a step.
  void begin(double lr);
  // After its backward and all sums: updates what still has gradients, and returns the norm of all.
  Tensor finish();

 private:
  void update_complete(const std::vector<Parameter*>& parameters);
  void update(const std::vector<Parameter*>& parameters);

  std::vector<nn::Unit*> units_;
  std::vector<std::shared_ptr<nn::UnitHook>> hooks_;  // its own
  optim::Optimizer& optimizer_;
  parallel::DataParallel& data_parallel_;
  const parallel::Mesh& mesh_;
  double lr_ = 0;
  std::map<const Parameter*, Tensor> squares_;  // sums over the gradients that have been used
};

}  // namespace titanium::train
