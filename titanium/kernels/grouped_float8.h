// The grouped products of kernels/grouped_multiply.h with operands of float8 (e4m3) on the tensor cores, and sums in
// fp32 that are multiplied by what the numbers stand for. What is summed over lies together in every operand: a line.
// Every line has a scale, a power of two. Rows, ends and streams as there; results are bfloat16, rounded once.
#pragma once

#include "titanium/kernels/expert_float8.h"
#include "titanium/kernels/grouped_multiply.h"

namespace titanium::kernels {

// Lines of [rows, depth], or of matrices [E, width, depth], contiguous; `reciprocals` has one for each, 1 / scale.
struct Float8Lines {
  const void* values;
  const float* reciprocals;
};

constexpr bool grouped_float8_takes(int64_t width, int64_t depth) { return width % 64 == 0 && depth % 64 == 0; }

struct Float8Groups {
  const int32_t* ends;  // [num_experts]
  int64_t num_experts;
  int64_t rows;
  int64_t width;  // of the result
  int64_t depth;  // of one sum
};

// y = rows times the transposed matrix of each expert. The sum of two such products where there is a second pair.
struct GroupedFloat8Args {
  Float8Groups groups;
  Float8Lines rows;
  Float8Lines matrices;
  void* y;                 // [rows, width]
  Float8Lines rows2 = {};  // values may be null
  Float8Lines matrices2 = {};
};
void grouped_float8(const GroupedFloat8Args& args, GpuStream stream);

// The products of the same rows with two matrices of each expert. `width` is a multiple of 128.
struct GroupedFloat8PairArgs {
  Float8Groups groups;
  Float8Lines rows;
  Float8Lines first;
  Float8Lines second;
  void* y_first;
  void* y_second;
};
void grouped_float8_pair(const GroupedFloat8PairArgs& args, GpuStream stream);

// sums [+]= dy^T x of each expert; zero for those without rows, whose reciprocals are finite. Operands are lines of
// experts (titanium/kernels/expert_float8.h), dy [out, length] and x [in, length], with reciprocals [E, out] and [E,
// in].
struct GroupedFloat8WeightGradArgs {
  const int32_t* line_ends;
  int64_t num_experts;
  int64_t length;
  int64_t out;
  int64_t in;
  Float8Lines dy;
  Float8Lines x;
  ElementType sum_type;
  void* sums;  // [E, out, in]
  bool accumulate;
};
void grouped_float8_weight_grad(const GroupedFloat8WeightGradArgs& args, GpuStream stream);

}  // namespace titanium::kernels
