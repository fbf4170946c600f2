#include "titanium/checkpoint/staging.h"

#include <ATen/ops/empty.h>

namespace titanium::checkpoint {

Staging::Staging(Device device, const StateDict& like)
    : pinned_(device.is_cuda()), stream_(device), ready_(device), copied_(device) {
  if (!pinned_) return;
  reservation_ = std::async(std::launch::async, [this, tensors = like.tensors] {
    for (size_t i = 0; i < tensors.size(); ++i) host_memory(i, tensors[i].tensor);
  });
}

Tensor Staging::host_memory(size_t place, const Tensor& like) {
  if (kept_.size() <= place) kept_.resize(place + 1);
  Tensor& memory = kept_[place];
  if (!memory.defined() || memory.sizes() != like.sizes() || memory.scalar_type() != like.scalar_type()) {
    memory = at::empty(like.sizes(), at::TensorOptions(like.scalar_type()).pinned_memory(pinned_));
  }
  return memory;
}

StateDict Staging::copy(const StateDict& live) {
  if (reservation_.valid()) reservation_.get();
  StateDict staged = live;
  ready_.record();
  {
    const SideStream::Scope beside(stream_);
    ready_.wait();
    for (size_t i = 0; i < live.tensors.size(); ++i) {
      const Tensor& tensor = live.tensors[i].tensor;
      staged.tensors[i].tensor = host_memory(i, tensor).copy_(tensor, /*non_blocking=*/pinned_);
    }
    copied_.record();
  }
  if (!pinned_) kept_.clear();
  return staged;
}

}  // namespace titanium::checkpoint
