// A unit is a piece of the model whose weights come and go together: the embedding, a block, the head.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::nn {

// What happens around a unit. parallel/ fills it: gather weights before a use, free them after it, reduce gradients.
class UnitHook {
 public:
  virtual ~UnitHook() = default;
  virtual void before_forward() = 0;
  virtual void after_forward() = 0;
  // Around the backward of the whole unit. `after_backward` is not called where the unit's input needs no gradient (the
  // first unit): its gradients are complete when the whole backward is.
  virtual void before_backward() = 0;
  virtual void after_backward() = 0;
};

enum class UnitRole { kRoot, kEmbedding, kBlock, kHead };

// A use of parameters outside their unit's `run` fails while they are not gathered. May run several times in a step.
class Unit {
 public:
  Unit(std::string name, UnitRole role, std::vector<Parameter*> parameters)
      : name(std::move(name)),
        role(role),
        backward_uses_weights(role != UnitRole::kEmbedding),
        parameters(std::move(parameters)) {}

  // f(x), with the hook around it if there is one.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const;

  std::string name;
  UnitRole role;
  bool backward_uses_weights;  // the gradient of a look-up does not need the table
  std::vector<Parameter*> parameters;
  std::shared_ptr<UnitHook> hook;
};

}  // namespace titanium::nn
