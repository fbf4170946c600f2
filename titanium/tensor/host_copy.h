// Small arrays of the host, copied to the device without waiting for it.
#pragma once

#include <span>

#include "titanium/tensor/tensor.h"

namespace titanium {

// One dimension, int32 or int64. On a GPU the copy comes from pinned memory of its own and is only queued: `values` may
// go at once.
Tensor copy_to_device(std::span<const int32_t> values, Device device);
Tensor copy_to_device(std::span<const int64_t> values, Device device);

}  // namespace titanium
