// A unit is a piece of the model whose weights come and go together: the embedding, a block, the head.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::nn {

// What happens around a unit: weights are gathered before a use and freed after it, gradients are reduced. A hook
// overrides the moments that it needs.
class UnitHook {
 public:
  virtual ~UnitHook() = default;
  virtual void before_forward() {}
  virtual void after_forward() {}
  // Around the backward of the whole unit. `after_backward` is not called where the unit's input needs no gradient (the
  // first unit): its gradients are complete when the whole backward is.
  virtual void before_backward() {}
  virtual void after_backward() {}
};

// Note [Order of hooks]
// The hooks of a unit enclose it like brackets: `before_forward` and `before_backward` are called from the outermost
// hook to the innermost, `after_forward` and `after_backward` from the innermost to the outermost. So an inner hook
// always finds what an outer one has prepared: inside data parallelism the weights are whole and the gradients are this
// rank's own, outside of it the weights may be shards and the reduction of the gradients has been started. What is
// applied later encloses what is there: the exchanges of a model first, then FSDP or DDP, then the early step.

enum class UnitRole { kRoot, kEmbedding, kBlock, kHead };

// A use of parameters outside their unit's `run` fails while they are not gathered. May run several times in a step.
class Unit {
 public:
  Unit(std::string name, UnitRole role, std::vector<Parameter*> parameters)
      : name(std::move(name)),
        role(role),
        backward_uses_weights(role != UnitRole::kEmbedding),
        parameters(std::move(parameters)) {}

  // f(inputs), with the hooks around it: Note [Order of hooks]. A backward calls the hooks that the forward had, once
  // for all outputs and all inputs.
  ops::Tensors run(const ops::Tensors& inputs, const std::function<ops::Tensors(const ops::Tensors&)>& f) const;
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const;

  // Adds a hook around those that are there; push_back on `hooks` adds one inside them.
  void enclose(std::shared_ptr<UnitHook> hook) { hooks.insert(hooks.begin(), std::move(hook)); }

  std::string name;
  UnitRole role;
  bool backward_uses_weights;  // the gradient of a look-up does not need the table
  std::vector<Parameter*> parameters;
  std::vector<std::shared_ptr<UnitHook>> hooks;  // outermost first
};

}  // namespace titanium::nn
