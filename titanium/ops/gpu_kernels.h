// Our kernels on the current stream of the GPU, one for each struct of arguments; a back end calls them, no_gpu/ says
// that there are none.
#pragma once

#include <span>

#include "titanium/kernels/adamw.h"
#include "titanium/kernels/attention_sinks.h"
#include "titanium/kernels/column_sums.h"
#include "titanium/kernels/copy_tensors.h"
#include "titanium/kernels/cross_entropy.h"
#include "titanium/kernels/embedding_grad.h"
#include "titanium/kernels/expert_column_sums.h"
#include "titanium/kernels/expert_float8.h"
#include "titanium/kernels/expert_rows.h"
#include "titanium/kernels/expert_swiglu.h"
#include "titanium/kernels/expert_swiglu_float8.h"
#include "titanium/kernels/fill_normal.h"
#include "titanium/kernels/float8.h"
#include "titanium/kernels/gate.h"
#include "titanium/kernels/gelu.h"
#include "titanium/kernels/grouped_float8.h"
#include "titanium/kernels/grouped_multiply.h"
#include "titanium/kernels/head_norm_rope.h"
#include "titanium/kernels/latent_heads.h"
#include "titanium/kernels/merge_attention.h"
#include "titanium/kernels/modulated_norm.h"
#include "titanium/kernels/order_parts.h"
#include "titanium/kernels/rms_norm.h"
#include "titanium/kernels/rope.h"
#include "titanium/kernels/route.h"
#include "titanium/kernels/sort_by_expert.h"
#include "titanium/kernels/sum_of_squares.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::ops {

void launch(const kernels::AbsoluteMaximumArgs& args);
void launch(const kernels::AdamWArgs& args);
void launch(const kernels::AddSinksArgs& args);
void launch(const kernels::ClampedSwigluBackwardArgs& args);
void launch(const kernels::ClampedSwigluForwardArgs& args);
void launch(const kernels::ColumnMaximaArgs& args);
void launch(const kernels::ColumnSumsArgs& args);
void launch(const kernels::CombineRowsArgs& args);
void launch(const kernels::CrossEntropyArgs& args);
void launch(const kernels::CrossEntropyGradientArgs& args);
void launch(const kernels::CrossEntropyShardArgs& args);
void launch(const kernels::EmbeddingGradArgs& args);
void launch(const kernels::ExpertColumnSumsArgs& args);
void launch(const kernels::ExpertSwigluBackwardArgs& args);
void launch(const kernels::FillNormalArgs& args);
void launch(const kernels::Float8LineEndsArgs& args);
void launch(const kernels::GateBackwardArgs& args);
void launch(const kernels::GateForwardArgs& args);
void launch(const kernels::GatherRowsArgs& args);
void launch(const kernels::GeluBackwardArgs& args);
void launch(const kernels::GeluForwardArgs& args);
void launch(const kernels::GroupedFloat8Args& args);
void launch(const kernels::GroupedFloat8PairArgs& args);
void launch(const kernels::GroupedFloat8WeightGradArgs& args);
void launch(const kernels::GroupedForwardArgs& args);
void launch(const kernels::GroupedInputGradArgs& args);
void launch(const kernels::GroupedSwigluArgs& args);
void launch(const kernels::GroupedWeightGradArgs& args);
void launch(const kernels::HeadNormRopeBackwardArgs& args);
void launch(const kernels::HeadNormRopeForwardArgs& args);
void launch(const kernels::MergeAttentionArgs& args);
void launch(const kernels::ModulatedNormBackwardArgs& args);
void launch(const kernels::ModulatedNormForwardArgs& args);
void launch(const kernels::QuantizeColumnsArgs& args);
void launch(const kernels::OrderPartsArgs& args);
void launch(const kernels::QuantizeGroupsArgs& args);
void launch(const kernels::QuantizeMatricesArgs& args);
void launch(const kernels::QuantizeRmsNormArgs& args);
void launch(const kernels::QuantizeRowsArgs& args);
void launch(const kernels::QuantizeTensorArgs& args);
void launch(const kernels::RmsNormApplyArgs& args);
void launch(const kernels::RmsNormBackwardArgs& args);
void launch(const kernels::RmsNormForwardArgs& args);
void launch(const kernels::RopeArgs& args);
void launch(const kernels::RouteArgs& args);
void launch(const kernels::RouteBackwardArgs& args);
void launch(const kernels::SinkProductsArgs& args);
void launch(const kernels::SortByExpertArgs& args);
void launch(const kernels::SumLossesArgs& args);
void launch(const kernels::SumOfSquaresArgs& args);
void launch(const kernels::SwigluBackwardArgs& args);
void launch(const kernels::SwigluFloat8BackwardArgs& args);
void launch(const kernels::SwigluFloat8ForwardArgs& args);
void launch(const kernels::SwigluForwardArgs& args);
void launch(const kernels::TakeRowsArgs& args);
// One struct for two kernels.
enum class Direction { kForward, kBackward };
void launch(const kernels::LatentHeadsArgs& args, Direction direction);
void launch_copies(std::span<const kernels::CopyTensor> copies, bool accumulate);

// Whether the GPU can do the launches of kernels/grouped_multiply.h and kernels/grouped_float8.h.
bool has_grouped_multiply();

// Bytes of scratch memory for a launch with these arguments.
int64_t scratch_bytes(const kernels::ColumnSumsArgs& args);
int64_t scratch_bytes(const kernels::EmbeddingGradArgs& args);
int64_t scratch_bytes(const kernels::GateBackwardArgs& args);
int64_t scratch_bytes(const kernels::HeadNormRopeBackwardArgs& args);
int64_t scratch_bytes(const kernels::ExpertColumnSumsArgs& args);
int64_t scratch_bytes(const kernels::ModulatedNormBackwardArgs& args);
int64_t scratch_bytes(const kernels::RmsNormBackwardArgs& args);
int64_t scratch_bytes(const kernels::SortByExpertArgs& args);
int64_t scratch_bytes(const kernels::SumOfSquaresArgs& args);

}  // namespace titanium::ops
