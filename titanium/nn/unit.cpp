#include "titanium/nn/unit.h"

#include "titanium/ops/record.h"

namespace titanium::nn {

Tensor Unit::run(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const {
  if (hook == nullptr) return f(x);
  hook->before_forward();
  const Tensor y = f(ops::on_backward(x, [hook = hook] { hook->after_backward(); }));
  hook->after_forward();
  return ops::on_backward(y, [hook = hook] { hook->before_backward(); });
}

}  // namespace titanium::nn
