#include "titanium/checkpoint/staging.h"

#include <ATen/ops/empty.h>

namespace titanium::checkpoint {

Staging::Staging(Device device, bool pinned)
    : pinned_(pinned && device.is_cuda()), stream_(device), ready_(device), copied_(device) {}

Tensor Staging::host_memory(size_t place, const Tensor& like) {
  if (kept_.size() <= place) kept_.resize(place + 1);
  Tensor& memory = kept_[place];
  if (!memory.defined() || memory.sizes() != like.sizes() || memory.scalar_type() != like.scalar_type()) {
    memory = at::empty(like.sizes(), at::TensorOptions(like.scalar_type()).pinned_memory(pinned_));
  }
  return memory;
}

StateDict Staging::copy(const StateDict& live) {
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
