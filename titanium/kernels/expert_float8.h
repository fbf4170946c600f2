// Float8 for the products of experts: columns, quantised and transposed. One scale for each column of each group, a
// power of two, from the largest magnitude of that column in the group; bits as those of titanium/kernels/float8.h, in
// e4m3. The column of a group becomes a line: its elements lie together.
//
// Pointers are device memory, 16-byte aligned; work is queued on `stream` and nothing synchronises. `dim` is a multiple
// of 8.
#pragma once

#include <cstdint>

#include "titanium/kernels/element_type.h"
#include "titanium/kernels/gpu_stream.h"

namespace titanium::kernels {

// Note [Lines of experts]
// Lines of rows of experts are [dim, length]. In each, the part of one expert follows that of another, each filled up
// with zeros to a multiple of kFloat8GroupMultiple elements, so that products need not look where it ends.
constexpr int64_t kFloat8GroupMultiple = 128;
// Enough for `rows` of so many groups.
constexpr int64_t float8_line_length(int64_t rows, int64_t groups) {
  return (rows + groups * (kFloat8GroupMultiple - 1)) / kFloat8GroupMultiple * kFloat8GroupMultiple;
}

struct Float8LineEndsArgs {
  const int32_t* ends;  // [groups]: where rows end
  int32_t* line_ends;   // [groups]: where lines end
  int64_t groups;
};
void float8_line_ends(const Float8LineEndsArgs& args, GpuStream stream);

// Rows of groups, sorted; in memory, or gathered from tokens.
struct QuantizeGroupsArgs {
  ElementType type;
  const void* x;                 // [rows, dim], or [tokens, dim]
  const int32_t* choice_of_row;  // may be null. Otherwise row r is that of token choice_of_row[r] / top_k
  int64_t top_k;
  const int32_t* ends;       // [groups]
  const int32_t* line_ends;  // [groups]
  int64_t groups;
  int64_t rows;
  int64_t dim;
  uint8_t* lines;  // [dim, length]
  int64_t length;
  float* reciprocals;  // [groups, dim]; 1 / scale; of groups without rows untouched
};
void quantize_groups(const QuantizeGroupsArgs& args, GpuStream stream);

// Matrices [matrices, rows, dim] -> [matrices, dim, rows]; `rows` is a multiple of 16.
struct QuantizeMatricesArgs {
  ElementType type;
  const void* x;
  int64_t matrices;
  int64_t rows;
  int64_t dim;
  uint8_t* lines;
  float* reciprocals;  // [matrices, dim]
};
void quantize_matrices(const QuantizeMatricesArgs& args, GpuStream stream);

}  // namespace titanium::kernels
