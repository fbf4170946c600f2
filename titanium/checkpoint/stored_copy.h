// Copies parts of stored tensors into tensors.
#pragma once

#include "titanium/checkpoint/torch_archive.h"

namespace titanium::checkpoint {

// destination = source[offset : offset + destination.sizes()]. Touches only the bytes of that part. The destination is
// a tensor or view of any strides, dtype and device; another dtype or device passes through a block of a few megabytes.
void copy_stored(const StoredTensor& source, const Shape& offset, const Tensor& destination);

}  // namespace titanium::checkpoint
