#include "titanium/nn/module.h"

#include <ATen/ops/zeros.h>

namespace titanium::nn {

Buffer::Buffer(std::string fqn, Shape shape, Dtype dtype, bool is_persistent)
    : fqn(std::move(fqn)), shape(std::move(shape)), dtype(dtype), is_persistent(is_persistent) {}

void Buffer::materialize(Device device) { value = at::zeros(shape, at::TensorOptions(dtype).device(device)); }

std::vector<Buffer*> Module::persistent_buffers() const {
  std::vector<Buffer*> persistent = buffers_;
  std::erase_if(persistent, [](const Buffer* buffer) { return !buffer->is_persistent; });
  return persistent;
}

std::vector<StoredTensor> Module::stored_tensors() const {
  std::vector<StoredTensor> stored;
  for (const Parameter* parameter : parameters_) stored.push_back({parameter->fqn, parameter->global_shape});
  for (const Buffer* buffer : persistent_buffers()) stored.push_back({buffer->fqn, buffer->shape});
  return stored;
}

void Module::materialize(Dtype dtype, Device device, bool pinned, std::optional<Device> buffers) {
  for (Parameter* parameter : parameters_) parameter->materialize(dtype, device, pinned);
  for (Buffer* buffer : buffers_) buffer->materialize(buffers.value_or(device));
}

void Module::add(const Module& child) {
  parameters_.insert(parameters_.end(), child.parameters_.begin(), child.parameters_.end());
  buffers_.insert(buffers_.end(), child.buffers_.begin(), child.buffers_.end());
}

}  // namespace titanium::nn
