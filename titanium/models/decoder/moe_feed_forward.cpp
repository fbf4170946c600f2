#include "titanium/models/decoder/moe_feed_forward.h"

#include <algorithm>

#include "titanium/kernels/expert_float8.h"
#include "titanium/ops/init.h"

namespace titanium::models::decoder {

MoeFeedForward::MoeFeedForward(const std::string& fqn, int64_t dim, const MoeArgs& args)
    : args_(args),
      dim_(dim),
      gate_(fqn + ".router.gate.weight", {args.num_experts, dim}),
      expert_bias_(fqn + ".expert_bias", {args.num_experts}, at::kFloat, /*is_persistent=*/true),
      tokens_per_expert_(fqn + ".tokens_per_expert", {args.num_experts}, at::kLong, /*is_persistent=*/false) {
  add_experts(fqn + ".experts", dim);
  add(gate_);
  if (args.gate_bias) {
    gate_bias_ = std::make_unique<Parameter>(fqn + ".router.gate.bias", Shape{args.num_experts});
    add(*gate_bias_);
  }
  if (args.num_shared_experts > 0) {
    const int64_t hidden = args.num_shared_experts * args.moe_hidden_dim;
    shared_w1_ = std::make_unique<nn::Linear>(fqn + ".shared_experts.w1", dim, hidden);
    shared_w2_ = std::make_unique<nn::Linear>(fqn + ".shared_experts.w2", hidden, dim);
    shared_w3_ = std::make_unique<nn::Linear>(fqn + ".shared_experts.w3", dim, hidden);
    for (const nn::Linear* linear : {shared_w1_.get(), shared_w2_.get(), shared_w3_.get()}) add(*linear);
  }
  if (args.load_balance_coeff > 0) {
    add(expert_bias_);
    add(tokens_per_expert_);
  }
}

void MoeFeedForward::add_experts(const std::string& fqn, int64_t dim) {
  std::vector<Parameter*> all;
  const auto make = [&](const char* name, const Shape& shape) {
    auto parameter = std::make_unique<Parameter>(fqn + name, shape);
    parameter->view = RankView::kSparse;
    add(*parameter);
    all.push_back(parameter.get());
    return parameter;
  };
  const int64_t experts = args_.num_experts, hidden = args_.moe_hidden_dim;
  if (args_.clamped_swiglu) {
    hidden_.push_back(make(".mlp1_weight", {experts, 2 * hidden, dim}));
    hidden_bias_ = make(".mlp1_bias", {experts, 2 * hidden});
    down_ = make(".mlp2_weight", {experts, dim, hidden});
    down_bias_ = make(".mlp2_bias", {experts, dim});
  } else {
    hidden_.push_back(make(".w1", {experts, hidden, dim}));
    down_ = make(".w2", {experts, dim, hidden});
    hidden_.push_back(make(".w3", {experts, hidden, dim}));
  }
  unit_ = std::make_unique<nn::Unit>(fqn, nn::UnitRole::kBlock, std::move(all));
}

ops::MixtureOfExpertsArgs MoeFeedForward::arguments(nn::RmsNorm& norm, const BlockContext& context) {
  ops::MixtureOfExpertsArgs args{
      .norm = norm.weight,
      .eps = norm.eps,
      .gate = gate_,
      .gate_bias = gate_bias_.get(),
      .balance_E = expert_bias_.value,
      .load_E = tokens_per_expert_.value,
      .router = {.scores = args_.score_func == "softmax" ? ops::ScoreFunction::kSoftmax : ops::ScoreFunction::kSigmoid,
                 .top_k = args_.top_k,
                 .normalise = args_.route_norm,
                 .scale = args_.route_scale,
                 .groups = args_.num_expert_groups,
                 .limited_groups = args_.num_limited_groups,
                 .force_balance = context.experts.force_balance},
      .experts = {.hidden_bias = hidden_bias_.get(), .down = down_.get(), .down_bias = down_bias_.get()},
      .weighs_inputs = args_.score_before_experts,
      .rows = context.rows,
      .cuts_experts = context.experts.cut_by_rows,
      .exchange = *context.experts.exchange,
      .kept_routing = context.kept_routing,
      .losses = context.experts.losses,
  };
  for (const auto& weight : hidden_) args.experts.hidden.push_back(weight.get());
  if (args_.clamped_swiglu) {
    args.experts.activation = {.kind = ops::ActivationKind::kClampedSwiglu, .limit = args_.swiglu_limit};
  }
  if (shared_w1_) args.shared.emplace(ops::SharedExperts{shared_w1_->weight, shared_w2_->weight, shared_w3_->weight});
  return args;
}

Tensor MoeFeedForward::forward(const Tensor& h_tD, nn::RmsNorm& norm, const BlockContext& context, size_t level) {
  using enum ops::ExpertSaves;
  constexpr std::array kSaves = {kRows, kHidden, kNothing};  // in the order of levels()
  return unit_->run(
      h_tD, [&](const Tensor& h) { return ops::mixture_of_experts(h, arguments(norm, context), kSaves.at(level)); });
}

// Whether all products of the rows are in float8 on tensor cores (ops/experts/grouped_float8.h).
bool MoeFeedForward::multiplies_float8(Dtype compute) const {
  return compute == at::kBFloat16 && std::ranges::all_of(hidden_, [](const auto& weight) {
           return weight->float8 != nullptr && !weight->float8->emulate;
         });
}

// Transposed copies in float8 of the weights that make the hidden columns, all at a time, for the gradient of the rows.
// Beside them are, in float8, rows and lines of the output's gradient and of that of the hidden columns, and lines of
// their product; and in the compute dtype the gradient of the rows, and that of the output where it has travelled.
// Lines have room for groups that are filled up.
void MoeFeedForward::add_copies(nn::SaveLevels& levels) const {
  constexpr int64_t kElement = 2, kScale = 4, kFilled = kernels::kFloat8GroupMultiple - 1;
  const int64_t experts = down_->part.shape[0], hidden = args_.moe_hidden_dim;
  int64_t copied = kFilled * experts * (dim_ + 3 * hidden);
  for (const auto& weight : hidden_) copied += volume(weight->part.shape) + kScale * experts * dim_;
  const int64_t wide_rows = expert_ranks() > 1 ? 2 : 1;
  for (nn::SaveLevel& level : levels) {
    level.copied_weights = copied;
    level.backward_bytes_beside_copies = args_.top_k * ((2 + wide_rows * kElement) * dim_ + 5 * hidden);
  }
  // Rows that were made once more are still there, in float8 and, where they have travelled, in the compute dtype.
  levels.back().backward_bytes_beside_copies += args_.top_k * dim_ * (1 + (expert_ranks() > 1 ? kElement : 0));
}

nn::SaveLevels MoeFeedForward::levels(Dtype compute) const {
  const auto element = static_cast<int64_t>(c10::elementSize(compute));
  constexpr int64_t kInt = 4, kFloat = 4;
  const int64_t choices = args_.top_k, hidden = args_.moe_hidden_dim;
  const bool sends = expert_ranks() > 1;
  // Ranks that cut an expert work on the rows of all of them.
  const int64_t row_width = dim_ * (hidden / down_->part.shape[2]);
  const int64_t routing = choices * (3 * kInt + kFloat) + args_.num_experts * kFloat;
  const int64_t inputs = choices * row_width * element, products = choices * 2 * hidden * element;
  const int64_t shared = args_.num_shared_experts * 2 * hidden * element;
  // The gradients of the rows and of what went into the experts, the product and its gradient; and rows in the order in
  // which they travel.
  const int64_t backward = choices * ((sends ? 5 : 3) * row_width + 2 * hidden) * element;
  // Rows that came from other ranks are kept as long as the products are.
  const int64_t kept = products + (sends ? inputs : 0);
  // In float8 tokens are quantised before they are gathered, so that there are no rows to keep.
  const bool quantises_tokens = multiplies_float8(compute) && !args_.score_before_experts;
  const int64_t gathered = sends || quantises_tokens ? 0 : inputs;
  nn::SaveLevels levels = {
      {"everything", routing + shared + kept + gathered, backward - gathered, kept + gathered, backward - gathered},
      {"products", routing + shared + kept, backward, kept, backward},
      {"attention_half", routing, backward + shared + kept, 0, backward + kept}};
  if (multiplies_float8(compute)) add_copies(levels);
  return levels;
}

// At most all tokens of all ranks choose as many of the experts here as they may.
double MoeFeedForward::largest_load() const {
  const int64_t chosen_here = std::min(args_.top_k, down_->part.shape[0]);
  return static_cast<double>(expert_ranks() * chosen_here) / static_cast<double>(args_.top_k);
}

void MoeFeedForward::init_weights(const InitialWeights& init) {
  // GPT-OSS starts all of them, biases too, with the deviation that depends on the depth.
  const double first_std = args_.clamped_swiglu ? init.residual_std : 0.02;
  ops::init_normal(*hidden_[0], init.seed, first_std);
  for (Parameter* parameter : {down_.get(), hidden_bias_.get(), down_bias_.get(), &gate_, gate_bias_.get(),
                               hidden_.size() > 1 ? hidden_[1].get() : nullptr}) {
    if (parameter != nullptr) ops::init_normal(*parameter, init.seed, init.residual_std);
  }
  if (!shared_w1_) return;
  ops::init_normal(shared_w1_->weight, init.seed, 0.02);
  for (nn::Linear* linear : {shared_w2_.get(), shared_w3_.get()}) {
    ops::init_normal(linear->weight, init.seed, init.residual_std);
  }
}

// The gradient of the gate is that of this rank's rows, or of this rank's part of the experts: a term of the sum.
parallel::TensorParallelPlan MoeFeedForward::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  return {{"layers.*.moe.router.gate", kOnSequence},
          {"layers.*.moe.experts.{w1,w3,mlp1_weight}", kByColumn},
          {"layers.*.moe.experts.{w2,mlp2_weight,mlp1_bias}", kByRow},
          {"layers.*.moe.experts.mlp2_bias", kOnAllRows},
          {"layers.*.moe.shared_experts.{w1,w3}", kByColumn},
          {"layers.*.moe.shared_experts.w2", kByRow}};
}

std::vector<CutSize> MoeFeedForward::cut_sizes() const {
  if (!shared_w1_) return {};
  return {{"columns of shared experts", args_.num_shared_experts * args_.moe_hidden_dim}};
}

int64_t MoeFeedForward::multiplied_elements() const {
  int64_t experts = 0, others = 0;
  for (const Parameter* parameter : parameters()) {
    (parameter->view == RankView::kSparse ? experts : others) += volume(parameter->global_shape);
  }
  return others + experts * args_.top_k / args_.num_experts;
}

std::optional<ExpertLoad> MoeFeedForward::expert_load() {
  if (args_.load_balance_coeff == 0) return std::nullopt;
  return ExpertLoad{expert_bias_, tokens_per_expert_, args_.load_balance_coeff};
}

}  // namespace titanium::models::decoder
