// Standard normal numbers as a function of a key and of their place.
#pragma once

#include <span>

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// fp32 [rows, columns] on the device; row i holds the numbers of the elements from rows[i] * columns on, so that a row
// is the same wherever and beside whichever others it is made. The same bits on every device. Only queues work.
Tensor counter_normal(uint64_t key, std::span<const int64_t> rows, int64_t columns, Device device);

}  // namespace titanium::ops
