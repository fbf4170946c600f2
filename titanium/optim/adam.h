// Adam and AdamW over parameters, with ATen's fused kernels on CPU and CUDA.
#pragma once

#include <string>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::optim {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // true (AdamW): the decay shrinks the weights themselves. false (Adam): it is added to the gradient.
  bool decoupled = true;
};

// One tensor of the optimizer's state. Writing to `tensor` changes the state: that is how a checkpoint is loaded.
struct StateTensor {
  const Parameter* parameter;
  std::string name;  // "exp_avg", "exp_avg_sq" or "step"
  Tensor tensor;
};

// All parameters form one group: norms and embeddings decay as well. The moments have the parameter's dtype and device,
// the step counts are float32 scalars beside them, as in torch.optim with fused=True.
class Adam {
 public:
  // Allocates the state. The parameters are materialised, and outlive the optimizer.
  Adam(std::vector<Parameter*> parameters, const AdamOptions& options);

  // One update with learning rate `lr` and the gradients as they are. Parameters without a gradient are left alone and
  // do not count the step. If `skip_unless_finite` (a scalar on the parameters' device, usually the gradient norm) is
  // not finite, nothing changes at all; that is decided on the device. Only queues work on CUDA.
  void step(double lr, const Tensor& skip_unless_finite = {});
  void zero_grad();

  // The whole state, parameter by parameter.
  std::vector<StateTensor> state() const;

 private:
  struct Slot {
    Parameter* parameter;
    Tensor exp_avg;
    Tensor exp_avg_sq;
    Tensor step;
  };
  void update(const std::vector<const Slot*>& slots, double lr, const std::optional<Tensor>& skip);

  AdamOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace titanium::optim
