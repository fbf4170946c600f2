// What a run needs of an optimizer, whichever it is.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::optim {

// One tensor of the optimizer's state: of the shape of the parameter's shard, or a scalar. Writing to `tensor` changes
// the state: that is how a checkpoint is loaded.
struct StateTensor {
  const Parameter* parameter;
  std::string name;  // torch's: "exp_avg", "step", "momentum_buffer"
  Tensor tensor;
};

// The value of an option in torch's param_groups: None, a switch, a number, a text or a tuple of numbers.
using OptionValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>>;
using NamedOptions = std::vector<std::pair<std::string, OptionValue>>;

// The learning rate before the factors of groups: now, and as the schedule began to multiply it.
struct LearningRate {
  double now = 0;
  double initial = 0;
};

// Parameters come in groups with options of their own and a factor on the learning rate; which parameter is in which
// group never changes. The parameters outlive the optimizer.
class Optimizer {
 public:
  explicit Optimizer(std::vector<Parameter*> parameters) : parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Allocates the state, once, when the parameters are materialised: beside them, all zeros.
  virtual void materialize() = 0;

  // One update with learning rate `lr`. Parameters without a gradient are left alone unless the optimizer says
  // otherwise. With the norm of all gradients (a scalar on their device) these count as multiplied by
  // clip_scale(norm, max_norm), and if it is not finite, nothing changes at all; both are decided on the device. The
  // gradients are used up: they may be scaled in place. Only queues work on CUDA.
  void step(double lr, const Tensor& norm = {}, double max_norm = std::numeric_limits<double>::infinity()) {
    step_some(parameters_, lr, norm, max_norm);
  }
  // The same for some of the parameters, in any order; those of other optimizers are passed over. Where ranks update
  // together, all of them name the same parameters.
  virtual void step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm = {},
                         double max_norm = std::numeric_limits<double>::infinity()) = 0;
  void zero_grad();

  const std::vector<Parameter*>& parameters() const { return parameters_; }

  // The whole state. What belongs to one parameter follows one another.
  virtual std::vector<StateTensor> state() const = 0;
  // Bytes of the state of one of its parameters on this rank, scalars left out, if the parameter is of `dtype`. Like
  // the next two functions it needs no storage: memory is planned with it.
  virtual int64_t state_bytes(const Parameter& parameter, Dtype dtype) const = 0;
  // Bytes of temporaries at the moment of an update when most is needed.
  virtual int64_t working_bytes() const { return 0; }
  // What torch's param_groups say of one of its parameters.
  virtual NamedOptions options_of(const Parameter& parameter, const LearningRate& lr) const = 0;

 private:
  std::vector<Parameter*> parameters_;
};

// Several optimizers as one, each with parameters of its own.
std::unique_ptr<Optimizer> together(std::vector<std::unique_ptr<Optimizer>> optimizers);

}  // namespace titanium::optim
