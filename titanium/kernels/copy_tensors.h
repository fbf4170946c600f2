// Copies, casts or accumulates many tensors in one launch. Note [Tensor lists].
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"
#include "titanium/kernels/tensor_list.h"

namespace titanium::kernels {

// `rows` rows of `row_elements` each, with strides in elements. Contiguous arrays are best given as one row. Accesses
// are 128 bits wide where pointers are 16-byte aligned and, with several rows, row_elements and strides are multiples
// of 8.
struct CopyTensor {
  static constexpr int64_t kChunkElements = 1 << 14;
  const void* source;
  void* target;  // may be the source, if type and strides are the same; otherwise they do not overlap
  int64_t rows;
  int64_t row_elements;
  int64_t source_stride;
  int64_t target_stride;
  ElementType source_type;
  ElementType target_type;
  int64_t first_chunk;  // from number_chunks
  int64_t elements() const { return rows * row_elements; }
};

// target = source, or target += source (in fp32, rounded once). Pointers are device memory; work is queued on `stream`
// and nothing synchronises. No two targets of a list may overlap.
struct CopyTensorsArgs {
  const CopyTensor* tensors;  // [count], in device memory
  int64_t count;
  int64_t chunks;  // from number_chunks
  bool accumulate;
};
void copy_tensors(const CopyTensorsArgs& args, GpuStream stream);

// The same for a list in host memory that need not be numbered and is read before the call returns: for lists that
// change from call to call. The entries travel with the launch, so there is one launch for every kCopiesPerLaunch
// tensors.
inline constexpr int64_t kCopiesPerLaunch = 48;
void copy_tensors_of_host_list(const CopyTensor* tensors, int64_t count, bool accumulate, GpuStream stream);

}  // namespace titanium::kernels
