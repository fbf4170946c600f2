// Experts, of which a router chooses a few for each token, and shared experts, which all tokens meet.
#pragma once

#include <memory>
#include <optional>

#include "titanium/models/decoder/moe_args.h"
#include "titanium/models/decoder/parts.h"
#include "titanium/ops/experts/mixture_of_experts.h"

namespace titanium::models::decoder {

// Under torchtitan's names: router.gate.weight (.bias), experts.{w1,w2,w3} or experts.mlp{1,2}_{weight,bias},
// shared_experts.{w1,w2,w3}.weight; the buffers expert_bias (fp32, in checkpoints) and tokens_per_expert. The experts
// are a unit of their own, placed in the sparse view of the ranks.
class MoeFeedForward : public FeedForward {
 public:
  // `fqn` is layers.<i>.moe.
  MoeFeedForward(const std::string& fqn, int64_t dim, const MoeArgs& args);

  Tensor forward(const Tensor& h_tD, nn::RmsNorm& norm, const BlockContext& context, size_t level) override;
  // Everything: rows of experts and their first products; the products; nothing.
  nn::SaveLevels levels(Dtype compute) const override;
  double largest_load() const override;
  void init_weights(const InitialWeights& init) override;
  parallel::TensorParallelPlan tensor_parallel_plan() const override;
  std::vector<CutSize> cut_sizes() const override;
  int64_t multiplied_elements() const override;
  std::vector<nn::Unit*> units() override { return {unit_.get()}; }
  std::optional<ExpertLoad> expert_load() override;

 private:
  void add_experts(const std::string& fqn, int64_t dim);
  bool multiplies_float8(Dtype compute) const;
  void add_copies(nn::SaveLevels& levels) const;
  int64_t expert_ranks() const { return args_.num_experts / down_->part.shape[0]; }  // that share all experts
  ops::MixtureOfExpertsArgs arguments(nn::RmsNorm& norm, const BlockContext& context);

  MoeArgs args_;
  int64_t dim_;
  Parameter gate_;
  std::unique_ptr<Parameter> gate_bias_;
  std::vector<std::unique_ptr<Parameter>> hidden_;  // w1 and w3, or mlp1_weight
  std::unique_ptr<Parameter> down_, hidden_bias_, down_bias_;
  std::unique_ptr<nn::Linear> shared_w1_, shared_w2_, shared_w3_;  // null without shared experts
  nn::Buffer expert_bias_, tokens_per_expert_;
  std::unique_ptr<nn::Unit> unit_;
};

}  // namespace titanium::models::decoder
