// The device's side of Note [Tensor lists].
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "titanium/kernels/tensor_list.h"

namespace titanium::kernels {

// The last entry whose first chunk is not beyond `chunk`: entries without elements share the number of their successor.
template <typename Entry>
__device__ int64_t entry_of_chunk(const Entry* entries, int64_t count, int64_t chunk) {
  int64_t low = 0, high = count;  // entries[low].first_chunk <= chunk < entries[high].first_chunk
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (entries[middle].first_chunk <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Elements begin .. end - 1 of the tensor.
struct ChunkRange {
  int64_t begin;
  int64_t end;
};
template <typename Entry>
__device__ ChunkRange range_of_chunk(const Entry& entry, int64_t elements, int64_t chunk) {
  const int64_t begin = (chunk - entry.first_chunk) * Entry::kChunkElements;
  return {begin, begin + Entry::kChunkElements < elements ? begin + Entry::kChunkElements : elements};
}

}  // namespace titanium::kernels
