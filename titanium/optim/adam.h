// Adam and AdamW over parameters: our kernel on CUDA, ATen's fused one on the CPU.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "titanium/kernels/adamw.h"
#include "titanium/tensor/parameter.h"

namespace titanium::optim {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // true (AdamW): the decay shrinks the weights themselves. false (Adam): it is added to the gradient.
  bool decoupled = true;
  // Set: bf16 parameters are rounded stochastically (the moments to nearest, as ever). The random bits are a function
  // of this seed, the parameter's name, its step count and each element's number in the whole parameter: the same on
  // every layout and device, and in a run that was resumed. Note [Stochastic rounding].
  std::optional<uint64_t> rounding_seed;
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

  // One update with learning rate `lr`. Parameters without a gradient are left alone and do not count the step. With
  // the norm of all gradients (a scalar on their device) these count as multiplied by clip_scale(norm, max_norm), and
  // if it is not finite, nothing changes at all; both are decided on the device. The gradients are used up: where ATen
  // does the work they are scaled in place. Only queues work on CUDA.
  void step(double lr, const Tensor& norm = {}, double max_norm = std::numeric_limits<double>::infinity());
  // The same for some of the parameters.
  void step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm = {},
                 double max_norm = std::numeric_limits<double>::infinity());
  void zero_grad();
  const AdamOptions& options() const { return options_; }

  // The whole state, parameter by parameter.
  std::vector<StateTensor> state() const;

 private:
  struct Slot {
    Parameter* parameter;
    Tensor exp_avg;
    Tensor exp_avg_sq;
    Tensor step;
  };
  using Slots = std::vector<const Slot*>;
  struct Decisions;
  void update(const Slots& slots, double lr, const Tensor& norm, double max_norm);
  // The entries of a slot: one, or one for each matrix of element numbers where these matter.
  std::vector<kernels::AdamWTensor> describe(const Slot& slot, const Tensor& value, const Tensor& grad) const;
  kernels::AdamWArgs arguments(double lr, const Decisions& decisions) const;
  bool rounds_stochastically(const Parameter& parameter) const;
  void update_with_kernel(const Slots& slots, double lr, const Decisions& decisions);
  void update_with_host(const Slots& slots, double lr, const Decisions& decisions);
  void update_with_aten(const Slots& slots, double lr, const Decisions& decisions);

  AdamOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace titanium::optim
