// Lists of tensors for our kernels. Note [Tensor lists] in kernels/tensor_list.h.
#pragma once

#include <ATen/ops/empty.h>

#include <cstring>
#include <vector>

#include "titanium/kernels/tensor_list.h"
#include "titanium/tensor/tensor.h"

namespace titanium::optim {

// A list in device memory. Entries hold pointers: what they point to must live until the launch.
template <typename Entry>
struct DeviceList {
  Tensor bytes;
  int64_t count;
  int64_t chunks;
  const Entry* entries() const { return static_cast<const Entry*>(bytes.const_data_ptr()); }
};

// Queued on the current stream, through pinned memory; nothing waits.
template <typename Entry>
DeviceList<Entry> upload(std::vector<Entry> entries, Device device) {
  const auto count = static_cast<int64_t>(entries.size());
  const int64_t chunks = kernels::number_chunks(entries.data(), count);
  const auto size = static_cast<int64_t>(count * sizeof(Entry));
  const Tensor host = at::empty({size}, at::TensorOptions(at::kByte).pinned_memory(true));
  std::memcpy(host.mutable_data_ptr(), entries.data(), static_cast<size_t>(size));
  return {host.to(device, /*non_blocking=*/true), count, chunks};
}

}  // namespace titanium::optim
