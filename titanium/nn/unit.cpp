#include "titanium/nn/unit.h"

#include <ranges>

#include "titanium/ops/record.h"

namespace titanium::nn {

Tensor Unit::run(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const {
  if (hooks.empty()) return f(x);
  for (const auto& hook : hooks) hook->before_forward();
  const Tensor y = f(ops::on_backward(x, [hooks = hooks] {
    for (const auto& hook : hooks | std::views::reverse) hook->after_backward();
  }));
  for (const auto& hook : hooks | std::views::reverse) hook->after_forward();
  return ops::on_backward(y, [hooks = hooks] {
    for (const auto& hook : hooks) hook->before_backward();
  });
}

}  // namespace titanium::nn
