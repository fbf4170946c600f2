// Fills a box of a larger tensor with values that depend only on the key and on each element's index in the larger one.
#pragma once

#include <cstdint>

#include "titanium/kernels/counter_random.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// The box is seen as [rows, columns]: row r holds the global elements first + r * row_stride + (0 .. columns-1).
struct FillNormalArgs {
  void* out;      // [rows, columns], contiguous
  bool bfloat16;  // element type: bfloat16 (rounded from the fp32 value) or float
  int64_t rows;
  int64_t columns;
  uint64_t first;
  uint64_t row_stride;
  uint64_t key;
  NormalDistribution distribution;
};

// `out` is host memory. Uses one thread; cut the rows to use more.
void fill_normal_on_cpu(const FillNormalArgs& args);

// `out` is device memory; work is queued on `stream` and nothing synchronises. The same bits as on the CPU.
void fill_normal_on_gpu(const FillNormalArgs& args, GpuStream stream);

}  // namespace titanium::kernels
