#include "titanium/nn/unit.h"

#include <ranges>

#include "titanium/tensor/trace_scope.h"

namespace titanium::nn {

ops::Tensors Unit::run(const ops::Tensors& inputs, const std::function<ops::Tensors(const ops::Tensors&)>& f) const {
  const TraceScope scope(name, {}, TraceScope::Kind::kPart);
  if (hooks.empty()) return f(inputs);
  for (const auto& hook : hooks) hook->before_forward();
  const ops::Tensors outputs = f(ops::on_backward(inputs, [hooks = hooks] {
    for (const auto& hook : hooks | std::views::reverse) hook->after_backward();
  }));
  for (const auto& hook : hooks | std::views::reverse) hook->after_forward();
  return ops::on_backward(outputs, [hooks = hooks] {
    for (const auto& hook : hooks) hook->before_backward();
  });
}

Tensor Unit::run(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const {
  return run(ops::Tensors{x}, [&](const ops::Tensors& inputs) { return ops::Tensors{f(inputs[0])}; })[0];
}

}  // namespace titanium::nn
