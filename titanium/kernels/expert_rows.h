// Tokens become rows of experts, and rows become tokens again. T tokens make K choices each, numbered t * K + k; the
// row of a choice is what sort_by_expert gave it. Pointers are device memory; work is queued on `stream` and nothing
// synchronises. All arrays are contiguous. Any sizes; where a row of `dim` is a multiple of 16 bytes and the arrays are
// 16-byte aligned, accesses are 128 bits wide.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// rows[row_of_choice[t * K + k]] = [weights[t * K + k] *] x[t]: every row of x is read once, however often it is
// chosen. A product is made in fp32 and rounded once. With weights this is also the gradient of combine_rows.
struct GatherRowsArgs {
  ElementType type;
  const void* x;                 // [T, dim]
  const int32_t* row_of_choice;  // [T, K]
  const float* weights;          // [T, K]; may be null
  void* rows;                    // dim elements each
  int64_t tokens;
  int64_t top_k;
  int64_t dim;
};
void gather_rows(const GatherRowsArgs& args, GpuStream stream);

// y[t] = sum over k of [weights[t * K + k] *] (rows[r] [+ more_rows[r]] [+ bias[experts[t * K + k]]]) [+ addend[t]], r
// = row_of_choice[t * K + k], in fp32, in the order of k, the addend last, rounded once. Without weights this is also
// the gradient of gather_rows.
struct CombineRowsArgs {
  ElementType type;
  const void* rows;
  const int32_t* row_of_choice;  // [T, K]
  const float* weights;          // [T, K]; may be null
  const void* addend;            // [T, dim]; may be null; may be y
  void* y;                       // [T, dim]
  int64_t tokens;
  int64_t top_k;
  int64_t dim;
  const void* bias = nullptr;        // [experts, dim]; may be null
  const int32_t* experts = nullptr;  // [T, K]; for the bias
  const void* more_rows = nullptr;   // as rows; may be null, and is where there is a bias
};
void combine_rows(const CombineRowsArgs& args, GpuStream stream);

// y[i] = x[index[i]], rows of bytes, copied as they are.
struct TakeRowsArgs {
  const void* x;         // [any number of rows, row_bytes]
  const int32_t* index;  // [rows]
  void* y;               // [rows, row_bytes]
  int64_t rows;
  int64_t row_bytes;
};
void take_rows(const TakeRowsArgs& args, GpuStream stream);

}  // namespace titanium::kernels
