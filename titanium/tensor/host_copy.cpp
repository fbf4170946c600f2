#include "titanium/tensor/host_copy.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace titanium {
namespace {

template <typename T>
Tensor copy(std::span<const T> values, Dtype dtype, Device device) {
  const Tensor host =
      at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(dtype).pinned_memory(device.is_cuda()));
  std::ranges::copy(values, host.mutable_data_ptr<T>());
  return host.to(device, /*non_blocking=*/true);
}

}  // namespace

Tensor copy_to_device(std::span<const int32_t> values, Device device) { return copy(values, at::kInt, device); }

Tensor copy_to_device(std::span<const int64_t> values, Device device) { return copy(values, at::kLong, device); }

Tensor copy_to_device(std::span<const float> values, Device device) { return copy(values, at::kFloat, device); }

Tensor copy_to_device(std::span<const uint8_t> values, Device device) { return copy(values, at::kByte, device); }

}  // namespace titanium
