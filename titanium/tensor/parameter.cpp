#include "titanium/tensor/parameter.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium {

Parameter::Parameter(std::string fqn, Shape global_shape)
    : fqn(std::move(fqn)), global_shape(std::move(global_shape)), offset(this->global_shape.size(), 0) {}

void Parameter::materialize(Dtype dtype, Device device) {
  value = at::empty(global_shape, at::TensorOptions(dtype).device(device)).requires_grad_(true);
  value_changed();
}

Tensor Parameter::in(Dtype dtype) const {
  if (value.scalar_type() == dtype) return value.detach();
  if (!cast_.defined() || cast_.scalar_type() != dtype) cast_ = value.detach().to(dtype);
  return cast_;
}

void Parameter::accumulate(const Tensor& gradient) {
  TI_ASSERT(gradient.sizes() == value.sizes(), "gradient of {} has another shape than the parameter", fqn);
  if (grad.defined()) {
    grad.add_(gradient);
  } else {
    grad = gradient.to(value.scalar_type());
  }
}

}  // namespace titanium
