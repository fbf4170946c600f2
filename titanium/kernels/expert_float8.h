// Float8 for the products of experts: groups of rows, quantised by columns and transposed.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Where the line of a group begins and ends is a multiple of so many bytes.
constexpr int64_t kFloat8GroupMultiple = 16;

// One scale for each column of each group, a power of two, from the largest magnitude of that column in the group; bits
// as those of titanium/kernels/float8.h, in e4m3. The column of a group becomes a line: its elements lie together, and
// zeros fill it up to a multiple of kFloat8GroupMultiple.
//
// Pointers are device memory, 16-byte aligned; work is queued on `stream` and nothing synchronises.
struct QuantizeGroupsArgs {
  ElementType type;
  const void* x;          // the rows of one group after those of another, [rows, dim], contiguous
  const int32_t* ends;    // [groups]: where the rows of each end; null: each has `rows_of_group`
  int64_t rows_of_group;  // a multiple of kFloat8GroupMultiple; of no use with `ends`
  int64_t groups;
  int64_t dim;           // a multiple of 8
  uint8_t* lines;        // line c of group g begins at g * group_stride + c * line_stride, with `ends` after the lines
  int64_t group_stride;  // of the groups before it
  int64_t line_stride;   // both multiples of kFloat8GroupMultiple
  int32_t* line_ends;    // [groups]: where the lines of each end, if there are `ends`
  float* reciprocals;    // [groups, dim]; 1 / scale
};
void quantize_groups(const QuantizeGroupsArgs& args, GpuStream stream);

}  // namespace titanium::kernels
