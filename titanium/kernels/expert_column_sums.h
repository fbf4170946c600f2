// Sums of columns over the rows of each expert: the gradients of experts' biases.
//
// Note [Parts of experts]
// Rows of an expert lie together, but how many they are only the device knows, and one expert may have most of them. So
// the rows of every expert are cut into the same number of parts, which follows from the number of experts alone; a
// block sums a part of some columns into the scratch, and a second kernel adds the parts in order. No atomics: the
// result is a function of the input alone.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// sums[e] [+]= sum of [weight *] rows[r] over the rows of expert e, in fp32, rounded once; 0 for an expert without
// rows. Pointers are device memory; work is queued on `stream` and nothing synchronises. Any sizes; aligned rows take
// the vector path.
struct ExpertColumnSumsArgs {
  ElementType type;      // of rows
  ElementType sum_type;  // of sums
  const void* rows;
  int64_t row_stride;            // in elements
  const int32_t* ends;           // [num_experts]: where each expert's rows end
  const float* weights;          // may be null
  const int32_t* choice_of_row;  // the weight of row r is weights[choice_of_row[r]]; may be null: weights[r]
  void* sums;                    // [num_experts, dim]
  bool accumulate;               // add to sums instead of overwriting them
  int64_t num_experts;
  int64_t dim;
  float* scratch;  // of expert_column_sums_scratch_bytes(num_experts, dim), 16-byte aligned
};
void expert_column_sums(const ExpertColumnSumsArgs& args, GpuStream stream);
int64_t expert_column_sums_scratch_bytes(int64_t num_experts, int64_t dim);

}  // namespace titanium::kernels
