// Sums over rows, without atomics: each block sums the rows that it treats, and a second kernel sums the blocks' parts
// in order. The same bits in every run on one kind of GPU. Pointers are device memory; work is queued on `stream` and
// nothing synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// sums[column] [+]= sum over the rows of x[row, column]: the gradient of a bias. Rows begin x_stride elements apart.
struct ColumnSumsArgs {
  ElementType type;
  ElementType sum_type;
  const void* x;
  int64_t x_stride;
  void* sums;  // [dim]
  bool accumulate;
  float* scratch;  // of column_sums_scratch_bytes
  int64_t rows;
  int64_t dim;
};
void column_sums(const ColumnSumsArgs& args, GpuStream stream);
// Depends on the current device.
int64_t column_sums_scratch_bytes(const ColumnSumsArgs& args);

}  // namespace titanium::kernels
