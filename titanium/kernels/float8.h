// Float8: largest magnitudes, and quantisation by one scale for a tensor, for each row or for each column.
//
// An element becomes x * scale in fp32, bounded to the largest number of the format, rounded to nearest even; NaN stays
// NaN. scale = fp32(largest / max(amax, 1e-12)), computed in fp64; with power_of_two it is then rounded down to
// exp2(floor(log2(scale))). An amax of Inf gives the scale 0, NaN gives NaN, so that a broken tensor is seen as one
// when the product is multiplied by the reciprocal of the scale, which is what the kernels hand out. The bits are those
// of the ATen formulas on the same GPU.
//
// Inputs are [rows, dim] with a stride in elements from row to row where one is given, contiguous otherwise. Outputs
// are contiguous. Any sizes. Accesses are 128 bits wide (64 bits for float8 rows) where pointers and input rows are
// 16-byte aligned, dim is a multiple of 8 and, for a transposed output, rows is a multiple of 16. Pointers are device
// memory; work is queued on `stream` and nothing synchronises.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

enum class Float8Format : int32_t { kE4m3, kE5m2 };

// Raises *amax to the largest magnitude in x; NaN if there is one. The caller has set it to 0.
struct AbsoluteMaximumArgs {
  ElementType type;
  const void* x;
  int64_t row_stride;
  int64_t rows;
  int64_t dim;
  float* amax;
};
void absolute_maximum(const AbsoluteMaximumArgs& args, GpuStream stream);

// The same for each column.
struct ColumnMaximaArgs {
  ElementType type;
  const void* x;
  int64_t row_stride;
  int64_t rows;
  int64_t dim;
  float* amax;  // [dim]
};
void column_maxima(const ColumnMaximaArgs& args, GpuStream stream);

// One scale for a tensor, from an amax that is read on the device. What is quantised is read once, whichever outputs
// are asked for.
struct Float8Output {
  Float8Format format;
  bool power_of_two;
  const float* amax;
  void* values;       // [rows, dim]; may be null
  void* transposed;   // [dim, rows]; may be null
  float* reciprocal;  // 1 / scale; may be null, and is not amax
};

struct QuantizeTensorArgs {
  ElementType type;
  const void* x;
  int64_t row_stride;
  int64_t rows;
  int64_t dim;
  Float8Output out;
};
void quantize_tensor(const QuantizeTensorArgs& args, GpuStream stream);

// Quantises the y that rms_norm_apply would write with these arguments.
struct QuantizeRmsNormArgs {
  ElementType type;  // of x, and what y is rounded to
  ElementType weight_type;
  const void* x;
  const float* rstd;   // [rows]
  const void* weight;  // [dim]
  int64_t rows;
  int64_t dim;
  Float8Output out;
};
void quantize_rms_norm(const QuantizeRmsNormArgs& args, GpuStream stream);

// One scale for each row, a power of two, from the row's largest magnitude. One pass for rows that registers hold
// (32 KiB), two otherwise.
struct QuantizeRowsArgs {
  ElementType type;
  Float8Format format;
  const void* x;
  int64_t row_stride;
  int64_t rows;
  int64_t dim;
  void* values;        // [rows, dim]
  float* reciprocals;  // [rows]; 1 / scale
  float* column_amax;  // [dim], for quantize_columns: raised as by column_maxima in the same pass; may be null
};
void quantize_rows(const QuantizeRowsArgs& args, GpuStream stream);

// One scale for each column, a power of two, from the largest magnitudes that column_maxima or quantize_rows has found.
struct QuantizeColumnsArgs {
  ElementType type;
  Float8Format format;
  const void* x;
  int64_t row_stride;
  int64_t rows;
  int64_t dim;
  const float* amax;   // [dim]
  void* transposed;    // [dim, rows]
  float* reciprocals;  // [dim]; 1 / scale
};
void quantize_columns(const QuantizeColumnsArgs& args, GpuStream stream);

}  // namespace titanium::kernels
