// Copies parts of stored tensors into tensors.
#pragma once

#include "titanium/checkpoint/torch_file/archive.h"
#include "titanium/tensor/parameter.h"

namespace titanium::checkpoint {

// destination = source[offset : offset + destination.sizes()]. Touches only the bytes of that part. The destination is
// a tensor or view of any strides, dtype and device; another dtype or device passes through a block of a few megabytes.
// Copies to a GPU are queued on the current stream and read pinned memory later; other memory may change at once.
void copy_stored(const StoredTensor& source, const Shape& offset, const Tensor& destination);

// A tensor of `shape` is stored contiguously, and its elements from `first` on lie in `bytes`. Copies those of them
// that are in `box` to their places in `destination`, of the box's shape, as above.
void copy_range(Dtype dtype, const Shape& shape, int64_t first, std::span<const std::byte> bytes, const Box& box,
                const Tensor& destination);

}  // namespace titanium::checkpoint
