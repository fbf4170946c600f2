#include "titanium/kernels/grouped_float8.h"

#if defined(__HIP__)  // has_grouped_multiply() is false there

namespace titanium::kernels {

void grouped_float8(const GroupedFloat8Args& /*args*/, GpuStream /*stream*/) {}
void grouped_float8_pair(const GroupedFloat8PairArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_float8_weight_grad(const GroupedFloat8WeightGradArgs& /*args*/, GpuStream /*stream*/) {}

}  // namespace titanium::kernels

#else

#include "titanium/kernels/cuda/device/grouped_launch.cuh"

namespace titanium::kernels {
namespace {

using namespace grouped;

template <Form kForm>
using Of = Kind<kForm, Element::kE4m3>;

CUtensorMap lines_of(const Float8Lines& lines, int64_t matrices, int64_t rows, int64_t depth) {
  return boxes_of(lines.values, matrices, rows, depth, Reads::kAlong, Element::kE4m3);
}

KernelArgs common(const Float8Groups& groups) {
  KernelArgs args{};
  args.ends = groups.ends;
  args.num_experts = static_cast<int>(groups.num_experts);
  args.parts = 1;
  args.width = static_cast<int>(groups.width);
  args.depth = static_cast<int>(groups.depth);
  return args;
}

void set_rows(KernelArgs& args, int part, const Float8Lines& lines, const Float8Groups& groups) {
  args.rows[part] = lines_of(lines, 1, groups.rows, groups.depth);
  args.row_scales[part] = lines.reciprocals;
}
void set_columns(KernelArgs& args, int part, const Float8Lines& lines, const Float8Groups& groups) {
  args.columns[part] = lines_of(lines, groups.num_experts, groups.width, groups.depth);
  args.column_scales[part] = lines.reciprocals;
}
void set_result(KernelArgs& args, int result, void* out, const Float8Groups& groups) {
  args.results[result] = boxes_of(out, 1, groups.rows, groups.width, Reads::kAcross);
  args.out[result] = out;
}

}  // namespace

void grouped_float8(const GroupedFloat8Args& args, GpuStream stream) {
  const Float8Groups& groups = args.groups;
  KernelArgs kernel = common(groups);
  set_rows(kernel, 0, args.rows, groups);
  set_columns(kernel, 0, args.matrices, groups);
  set_result(kernel, 0, args.y, groups);
  if (args.rows2.values == nullptr) return run<Of<Form::kForward> >(kernel, stream);
  kernel.parts = 2;
  set_rows(kernel, 1, args.rows2, groups);
  set_columns(kernel, 1, args.matrices2, groups);
  run<Of<Form::kInputGrad> >(kernel, stream);
}

void grouped_float8_pair(const GroupedFloat8PairArgs& args, GpuStream stream) {
  const Float8Groups& groups = args.groups;
  KernelArgs kernel = common(groups);
  set_rows(kernel, 0, args.rows, groups);
  set_columns(kernel, 0, args.first, groups);
  set_columns(kernel, 1, args.second, groups);
  set_result(kernel, 0, args.y_first, groups);
  set_result(kernel, 1, args.y_second, groups);
  run<Of<Form::kTwoResults> >(kernel, stream);
}

void grouped_float8_weight_grad(const GroupedFloat8WeightGradArgs& args, GpuStream stream) {
  KernelArgs kernel{};
  kernel.ends = args.line_ends;
  kernel.num_experts = static_cast<int>(args.num_experts);
  kernel.parts = 1;
  kernel.height = static_cast<int>(args.out);
  kernel.width = static_cast<int>(args.in);
  kernel.rows[0] = lines_of(args.dy, 1, args.out, args.length);
  kernel.columns[0] = lines_of(args.x, 1, args.in, args.length);
  kernel.row_scales[0] = args.dy.reciprocals;
  kernel.column_scales[0] = args.x.reciprocals;
  kernel.results[0] = boxes_of(args.sums, args.num_experts, args.out, args.in, Reads::kAcross);
  kernel.out[0] = args.sums;
  kernel.accumulate = args.accumulate;
  with_type(args.sum_type, [&](auto element) { run<Of<Form::kWeightGrad>, decltype(element)>(kernel, stream); });
}

}  // namespace titanium::kernels

#endif
