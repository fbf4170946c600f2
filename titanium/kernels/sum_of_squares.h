// The sum of squares over many tensors in one launch. Note [Tensor lists].
// Pointers are device memory; work is queued on `stream` and nothing synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"
#include "titanium/kernels/tensor_list.h"

namespace titanium::kernels {

struct SumOfSquaresTensor {
  static constexpr int64_t kChunkElements = 1 << 16;
  const void* data;  // contiguous; 16-byte aligned ones are read with 128-bit accesses
  int64_t count;
  ElementType type;
  int64_t first_chunk;  // from number_chunks
  int64_t elements() const { return count; }
};

// *result = sum of all squares. All arithmetic is fp64, and its order is fixed: the same bits in every run on one kind
// of GPU. Infinities and NaNs come through.
struct SumOfSquaresArgs {
  const SumOfSquaresTensor* tensors;  // [count], in device memory
  int64_t count;
  int64_t chunks;    // from number_chunks
  double* partials;  // scratch of sum_of_squares_scratch_bytes()
  double* result;
};
void sum_of_squares(const SumOfSquaresArgs& args, GpuStream stream);
int64_t sum_of_squares_scratch_bytes();  // depends on the current device

}  // namespace titanium::kernels
