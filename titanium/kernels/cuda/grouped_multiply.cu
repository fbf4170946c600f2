#include "titanium/kernels/grouped_multiply.h"

#if defined(__HIP__)  // other GPUs have other tensor cores

namespace titanium::kernels {

bool has_grouped_multiply() { return false; }
void grouped_forward(const GroupedForwardArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_swiglu(const GroupedSwigluArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_input_grad(const GroupedInputGradArgs& /*args*/, GpuStream /*stream*/) {}
void grouped_weight_grad(const GroupedWeightGradArgs& /*args*/, GpuStream /*stream*/) {}

}  // namespace titanium::kernels

#else

#include "titanium/kernels/cuda/device/grouped_launch.cuh"

namespace titanium::kernels {
namespace {

using namespace grouped;

KernelArgs common(const ExpertGroups& groups) {
  KernelArgs args{};
  args.ends = groups.ends;
  args.num_experts = static_cast<int>(groups.num_experts);
  args.parts = 1;
  return args;
}

template <Form kForm>
using Of = Kind<kForm, Element::kBFloat16>;

}  // namespace

bool has_grouped_multiply() {
  static const bool kHas = [] {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9 && can_map_matrices();
  }();
  return kHas;
}

void grouped_forward(const GroupedForwardArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.x, 1, groups.rows, groups.in, Reads::kAlong);
  kernel.columns[0] = boxes_of(args.weight, groups.num_experts, groups.out, groups.in, Reads::kAlong);
  kernel.width = static_cast<int>(groups.out);
  kernel.depth = static_cast<int>(groups.in);
  kernel.results[0] = boxes_of(args.y, 1, groups.rows, groups.out, Reads::kAcross);
  kernel.out[0] = args.y;
  run<Of<Form::kForward> >(kernel, stream);
}

void grouped_swiglu(const GroupedSwigluArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.x, 1, groups.rows, groups.in, Reads::kAlong);
  kernel.columns[0] = boxes_of(args.gate_weight, groups.num_experts, groups.out, groups.in, Reads::kAlong);
  kernel.columns[1] = boxes_of(args.up_weight, groups.num_experts, groups.out, groups.in, Reads::kAlong);
  kernel.width = static_cast<int>(groups.out);
  kernel.depth = static_cast<int>(groups.in);
  kernel.out[0] = args.gate;
  kernel.out[1] = args.up;
  kernel.out[2] = args.product;
  for (int i = 0; i < 3; ++i) kernel.results[i] = boxes_of(kernel.out[i], 1, groups.rows, groups.out, Reads::kAcross);
  run<Of<Form::kTwoResults> >(kernel, stream);
}

void grouped_input_grad(const GroupedInputGradArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.dy, 1, groups.rows, groups.out, Reads::kAlong);
  kernel.columns[0] = boxes_of(args.weight, groups.num_experts, groups.out, groups.in, Reads::kAcross);
  if (args.dy2 != nullptr) {
    kernel.parts = 2;
    kernel.rows[1] = boxes_of(args.dy2, 1, groups.rows, groups.out, Reads::kAlong);
    kernel.columns[1] = boxes_of(args.weight2, groups.num_experts, groups.out, groups.in, Reads::kAcross);
  }
  kernel.width = static_cast<int>(groups.in);
  kernel.depth = static_cast<int>(groups.out);
  kernel.results[0] = boxes_of(args.dx, 1, groups.rows, groups.in, Reads::kAcross);
  kernel.out[0] = args.dx;
  run<Of<Form::kInputGrad> >(kernel, stream);
}

void grouped_weight_grad(const GroupedWeightGradArgs& args, GpuStream stream) {
  const ExpertGroups& groups = args.groups;
  KernelArgs kernel = common(groups);
  kernel.rows[0] = boxes_of(args.dy, 1, groups.rows, groups.out, Reads::kAcross);
  kernel.columns[0] = boxes_of(args.x, 1, groups.rows, groups.in, Reads::kAcross);
  kernel.height = static_cast<int>(groups.out);
  kernel.width = static_cast<int>(groups.in);
  kernel.results[0] = boxes_of(args.sums, groups.num_experts, groups.out, groups.in, Reads::kAcross);
  kernel.out[0] = args.sums;
  kernel.accumulate = args.accumulate;
  with_type(args.sum_type, [&](auto element) { run<Of<Form::kWeightGrad>, decltype(element)>(kernel, stream); });
}

}  // namespace titanium::kernels

#endif
