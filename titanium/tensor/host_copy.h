// Arrays of the host, copied to the device without waiting for it.
#pragma once

#include <span>

#include "titanium/tensor/tensor.h"

namespace titanium {

// One dimension, in the dtype of the values. On a GPU the copy comes from pinned memory of its own and is only queued:
// `values` may go at once.
Tensor copy_to_device(std::span<const int32_t> values, Device device);
Tensor copy_to_device(std::span<const int64_t> values, Device device);
Tensor copy_to_device(std::span<const float> values, Device device);
Tensor copy_to_device(std::span<const uint8_t> values, Device device);

}  // namespace titanium
