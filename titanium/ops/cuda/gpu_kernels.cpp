#include "titanium/ops/gpu_kernels.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace titanium::ops {
namespace {

template <typename Args>
void launch(void (*launcher)(const Args&, kernels::GpuStream), const Args& args) {
  launcher(args, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void launch(const kernels::AbsoluteMaximumArgs& args) { launch(kernels::absolute_maximum, args); }
void launch(const kernels::AdamWArgs& args) { launch(kernels::adamw, args); }
void launch(const kernels::AddSinksArgs& args) { launch(kernels::add_sinks, args); }
void launch(const kernels::ClampedSwigluBackwardArgs& args) { launch(kernels::clamped_swiglu_backward, args); }
void launch(const kernels::ClampedSwigluForwardArgs& args) { launch(kernels::clamped_swiglu_forward, args); }
void launch(const kernels::ColumnMaximaArgs& args) { launch(kernels::column_maxima, args); }
void launch(const kernels::ColumnSumsArgs& args) { launch(kernels::column_sums, args); }
void launch(const kernels::CombineRowsArgs& args) { launch(kernels::combine_rows, args); }
void launch(const kernels::CrossEntropyArgs& args) { launch(kernels::cross_entropy, args); }
void launch(const kernels::CrossEntropyGradientArgs& args) { launch(kernels::cross_entropy_gradient, args); }
void launch(const kernels::CrossEntropyShardArgs& args) { launch(kernels::cross_entropy_statistics, args); }
void launch(const kernels::EmbeddingGradArgs& args) { launch(kernels::embedding_grad, args); }
void launch(const kernels::ExpertColumnSumsArgs& args) { launch(kernels::expert_column_sums, args); }
void launch(const kernels::ExpertSwigluBackwardArgs& args) { launch(kernels::expert_swiglu_backward, args); }
void launch(const kernels::FillNormalArgs& args) { launch(kernels::fill_normal_on_gpu, args); }
void launch(const kernels::Float8LineEndsArgs& args) { launch(kernels::float8_line_ends, args); }
void launch(const kernels::GateBackwardArgs& args) { launch(kernels::gate_backward, args); }
void launch(const kernels::GateForwardArgs& args) { launch(kernels::gate_forward, args); }
void launch(const kernels::GatherRowsArgs& args) { launch(kernels::gather_rows, args); }
void launch(const kernels::GeluBackwardArgs& args) { launch(kernels::gelu_backward, args); }
void launch(const kernels::GeluForwardArgs& args) { launch(kernels::gelu_forward, args); }
void launch(const kernels::GroupedFloat8Args& args) { launch(kernels::grouped_float8, args); }
void launch(const kernels::GroupedFloat8PairArgs& args) { launch(kernels::grouped_float8_pair, args); }
void launch(const kernels::GroupedFloat8WeightGradArgs& args) { launch(kernels::grouped_float8_weight_grad, args); }
void launch(const kernels::GroupedForwardArgs& args) { launch(kernels::grouped_forward, args); }
void launch(const kernels::GroupedInputGradArgs& args) { launch(kernels::grouped_input_grad, args); }
void launch(const kernels::GroupedSwigluArgs& args) { launch(kernels::grouped_swiglu, args); }
void launch(const kernels::GroupedWeightGradArgs& args) { launch(kernels::grouped_weight_grad, args); }
void launch(const kernels::HeadNormRopeBackwardArgs& args) { launch(kernels::head_norm_rope_backward, args); }
void launch(const kernels::HeadNormRopeForwardArgs& args) { launch(kernels::head_norm_rope_forward, args); }
void launch(const kernels::LatentHeadsArgs& args, Direction direction) {
  launch(direction == Direction::kForward ? kernels::latent_heads_forward : kernels::latent_heads_backward, args);
}
void launch(const kernels::MergeAttentionArgs& args) { launch(kernels::merge_attention, args); }
void launch(const kernels::ModulatedNormBackwardArgs& args) { launch(kernels::modulated_norm_backward, args); }
void launch(const kernels::ModulatedNormForwardArgs& args) { launch(kernels::modulated_norm_forward, args); }
void launch(const kernels::QuantizeColumnsArgs& args) { launch(kernels::quantize_columns, args); }
void launch(const kernels::OrderPartsArgs& args) { launch(kernels::order_parts, args); }
void launch(const kernels::QuantizeGroupsArgs& args) { launch(kernels::quantize_groups, args); }
void launch(const kernels::QuantizeMatricesArgs& args) { launch(kernels::quantize_matrices, args); }
void launch(const kernels::QuantizeRmsNormArgs& args) { launch(kernels::quantize_rms_norm, args); }
void launch(const kernels::QuantizeRowsArgs& args) { launch(kernels::quantize_rows, args); }
void launch(const kernels::QuantizeTensorArgs& args) { launch(kernels::quantize_tensor, args); }
void launch(const kernels::RmsNormApplyArgs& args) { launch(kernels::rms_norm_apply, args); }
void launch(const kernels::RmsNormBackwardArgs& args) { launch(kernels::rms_norm_backward, args); }
void launch(const kernels::RmsNormForwardArgs& args) { launch(kernels::rms_norm_forward, args); }
void launch(const kernels::RopeArgs& args) { launch(kernels::rope, args); }
void launch(const kernels::RouteArgs& args) { launch(kernels::route, args); }
void launch(const kernels::RouteBackwardArgs& args) { launch(kernels::route_backward, args); }
void launch(const kernels::SinkProductsArgs& args) { launch(kernels::sink_products, args); }
void launch(const kernels::SortByExpertArgs& args) { launch(kernels::sort_by_expert, args); }
void launch(const kernels::SumLossesArgs& args) { launch(kernels::sum_losses, args); }
void launch(const kernels::SumOfSquaresArgs& args) { launch(kernels::sum_of_squares, args); }
void launch(const kernels::SwigluBackwardArgs& args) { launch(kernels::swiglu_backward, args); }
void launch(const kernels::SwigluFloat8BackwardArgs& args) { launch(kernels::swiglu_float8_backward, args); }
void launch(const kernels::SwigluFloat8ForwardArgs& args) { launch(kernels::swiglu_float8_forward, args); }
void launch(const kernels::SwigluForwardArgs& args) { launch(kernels::swiglu_forward, args); }
void launch(const kernels::TakeRowsArgs& args) { launch(kernels::take_rows, args); }

void launch_copies(std::span<const kernels::CopyTensor> copies, bool accumulate) {
  kernels::copy_tensors_of_host_list(copies.data(), static_cast<int64_t>(copies.size()), accumulate,
                                     c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool has_grouped_multiply() { return kernels::has_grouped_multiply(); }

int64_t scratch_bytes(const kernels::ColumnSumsArgs& args) { return kernels::column_sums_scratch_bytes(args); }
int64_t scratch_bytes(const kernels::EmbeddingGradArgs& args) {
  return kernels::embedding_grad_scratch_bytes(args.tokens, args.dim);
}
int64_t scratch_bytes(const kernels::GateBackwardArgs& args) { return kernels::gate_backward_scratch_bytes(args); }
int64_t scratch_bytes(const kernels::HeadNormRopeBackwardArgs& args) {
  return kernels::head_norm_rope_scratch_bytes(args);
}
int64_t scratch_bytes(const kernels::ExpertColumnSumsArgs& args) {
  return kernels::expert_column_sums_scratch_bytes(args.num_experts, args.dim);
}
int64_t scratch_bytes(const kernels::ModulatedNormBackwardArgs& args) {
  return kernels::modulated_norm_backward_scratch_bytes(args);
}
int64_t scratch_bytes(const kernels::RmsNormBackwardArgs& args) {
  return kernels::rms_norm_backward_scratch_bytes(args.rows, args.dim);
}
int64_t scratch_bytes(const kernels::SortByExpertArgs& args) {
  return kernels::sort_by_expert_scratch_bytes(args.choices, args.num_experts);
}
int64_t scratch_bytes(const kernels::SumOfSquaresArgs&) { return kernels::sum_of_squares_scratch_bytes(); }

}  // namespace titanium::ops
