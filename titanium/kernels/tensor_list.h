// Lists of tensors for kernels that treat many tensors in one launch.
//
// Note [Tensor lists]
// A list is an array of entries (a pointer or more, sizes, types). Kernels cut every tensor into chunks of a fixed
// number of elements and number the chunks through the whole list; `number_chunks` writes into each entry the number of
// its first chunk, which is how a block finds its tensor (binary search). The caller makes the list when the
// pointers are known, numbers it, copies it to device memory of its own, and keeps that alive while kernels that read
// it are queued. So a launch copies nothing and can be captured in a CUDA graph. Entries may be empty (no elements).
#pragma once

#include <cstdint>

namespace titanium::kernels {

// Returns the number of chunks. Entry needs `first_chunk` and `int64_t elements() const`.
template <typename Entry>
int64_t number_chunks(Entry* entries, int64_t count) {
  int64_t chunks = 0;
  for (int64_t i = 0; i < count; ++i) {
    entries[i].first_chunk = chunks;
    chunks += (entries[i].elements() + Entry::kChunkElements - 1) / Entry::kChunkElements;
  }
  return chunks;
}

}  // namespace titanium::kernels
