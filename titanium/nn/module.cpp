#include "titanium/nn/module.h"

namespace titanium::nn {

std::vector<Parameter*> Module::parameters() const { return parameters_; }

void Module::materialize(Dtype dtype, Device device, bool pinned) {
  for (Parameter* parameter : parameters_) parameter->materialize(dtype, device, pinned);
}

void Module::add(const Module& child) {
  parameters_.insert(parameters_.end(), child.parameters_.begin(), child.parameters_.end());
}

}  // namespace titanium::nn
