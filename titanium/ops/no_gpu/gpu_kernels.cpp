#include "titanium/ops/gpu_kernels.h"

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

int64_t refuse() {
  TI_ASSERT(false, "a CUDA tensor in a build without CUDA");
  return 0;
}

}  // namespace

void launch(const kernels::AbsoluteMaximumArgs&) { refuse(); }
void launch(const kernels::AdamWArgs&) { refuse(); }
void launch(const kernels::AddSinksArgs&) { refuse(); }
void launch(const kernels::ClampedSwigluBackwardArgs&) { refuse(); }
void launch(const kernels::ClampedSwigluForwardArgs&) { refuse(); }
void launch(const kernels::ColumnMaximaArgs&) { refuse(); }
void launch(const kernels::ColumnSumsArgs&) { refuse(); }
void launch(const kernels::CombineRowsArgs&) { refuse(); }
void launch(const kernels::CrossEntropyArgs&) { refuse(); }
void launch(const kernels::CrossEntropyGradientArgs&) { refuse(); }
void launch(const kernels::CrossEntropyShardArgs&) { refuse(); }
void launch(const kernels::EmbeddingGradArgs&) { refuse(); }
void launch(const kernels::ExpertColumnSumsArgs&) { refuse(); }
void launch(const kernels::ExpertSwigluBackwardArgs&) { refuse(); }
void launch(const kernels::FillNormalArgs&) { refuse(); }
void launch(const kernels::Float8LineEndsArgs&) { refuse(); }
void launch(const kernels::GateBackwardArgs&) { refuse(); }
void launch(const kernels::GateForwardArgs&) { refuse(); }
void launch(const kernels::GatherRowsArgs&) { refuse(); }
void launch(const kernels::GeluBackwardArgs&) { refuse(); }
void launch(const kernels::GeluForwardArgs&) { refuse(); }
void launch(const kernels::GroupedFloat8Args&) { refuse(); }
void launch(const kernels::GroupedFloat8PairArgs&) { refuse(); }
void launch(const kernels::GroupedFloat8WeightGradArgs&) { refuse(); }
void launch(const kernels::GroupedForwardArgs&) { refuse(); }
void launch(const kernels::GroupedInputGradArgs&) { refuse(); }
void launch(const kernels::GroupedSwigluArgs&) { refuse(); }
void launch(const kernels::GroupedWeightGradArgs&) { refuse(); }
void launch(const kernels::HeadNormRopeBackwardArgs&) { refuse(); }
void launch(const kernels::HeadNormRopeForwardArgs&) { refuse(); }
void launch(const kernels::LatentHeadsArgs&, Direction) { refuse(); }
void launch(const kernels::MergeAttentionArgs&) { refuse(); }
void launch(const kernels::ModulatedNormBackwardArgs&) { refuse(); }
void launch(const kernels::ModulatedNormForwardArgs&) { refuse(); }
void launch(const kernels::QuantizeColumnsArgs&) { refuse(); }
void launch(const kernels::OrderPartsArgs&) { refuse(); }
void launch(const kernels::QuantizeGroupsArgs&) { refuse(); }
void launch(const kernels::QuantizeMatricesArgs&) { refuse(); }
void launch(const kernels::QuantizeRmsNormArgs&) { refuse(); }
void launch(const kernels::QuantizeRowsArgs&) { refuse(); }
void launch(const kernels::QuantizeTensorArgs&) { refuse(); }
void launch(const kernels::RmsNormApplyArgs&) { refuse(); }
void launch(const kernels::RmsNormBackwardArgs&) { refuse(); }
void launch(const kernels::RmsNormForwardArgs&) { refuse(); }
void launch(const kernels::RopeArgs&) { refuse(); }
void launch(const kernels::RouteArgs&) { refuse(); }
void launch(const kernels::RouteBackwardArgs&) { refuse(); }
void launch(const kernels::SinkProductsArgs&) { refuse(); }
void launch(const kernels::SortByExpertArgs&) { refuse(); }
void launch(const kernels::SumLossesArgs&) { refuse(); }
void launch(const kernels::SumOfSquaresArgs&) { refuse(); }
void launch(const kernels::SwigluBackwardArgs&) { refuse(); }
void launch(const kernels::SwigluFloat8BackwardArgs&) { refuse(); }
void launch(const kernels::SwigluFloat8ForwardArgs&) { refuse(); }
void launch(const kernels::SwigluForwardArgs&) { refuse(); }
void launch(const kernels::TakeRowsArgs&) { refuse(); }
void launch_copies(std::span<const kernels::CopyTensor>, bool) { refuse(); }

bool has_grouped_multiply() { return false; }

int64_t scratch_bytes(const kernels::ColumnSumsArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::EmbeddingGradArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::GateBackwardArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::HeadNormRopeBackwardArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::ExpertColumnSumsArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::ModulatedNormBackwardArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::RmsNormBackwardArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::SortByExpertArgs&) { return refuse(); }
int64_t scratch_bytes(const kernels::SumOfSquaresArgs&) { return refuse(); }

}  // namespace titanium::ops
