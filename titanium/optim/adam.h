// Adam and AdamW over parameters: our kernel on CUDA, ATen's fused one on the CPU.
#pragma once

#include <optional>

#include "titanium/kernels/adamw.h"
#include "titanium/optim/optimizer.h"

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
  // "fused", "foreach" or "for-loop": what torch's param_groups say of the kernels; ours are the same for all three.
  std::string implementation = "fused";
};

struct AdamGroup {
  std::vector<Parameter*> parameters;
  AdamOptions options;
  double lr_factor = 1;
};

// The moments have the parameter's dtype and device, the step counts are float32 scalars beside them, as in torch.optim
// with fused=True. Parameters without a gradient do not count the step.
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<AdamGroup>& groups);
  // All parameters in one group.
  Adam(std::vector<Parameter*> parameters, const AdamOptions& options);

  void materialize() override;
  void step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm = {},
                 double max_norm = std::numeric_limits<double>::infinity()) override;
  std::vector<StateTensor> state() const override;
  int64_t state_bytes(const Parameter& parameter, Dtype dtype) const override;
  NamedOptions options_of(const Parameter& parameter, const LearningRate& lr) const override;

 private:
  struct Slot {
    Parameter* parameter;
    Tensor exp_avg;
    Tensor exp_avg_sq;
    Tensor step;
  };
  struct Group {
    AdamOptions options;
    double lr_factor;
    std::vector<Slot> slots;
  };
  using Slots = std::vector<const Slot*>;
  class Update;

  std::vector<Group> groups_;
};

}  // namespace titanium::optim
