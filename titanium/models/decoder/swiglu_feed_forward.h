// w2(silu(w1 n) * (w3 n)).
#pragma once

#include "titanium/models/decoder/parts.h"

namespace titanium::models::decoder {

class SwigluFeedForward : public FeedForward {
 public:
  // `fqn` is layers.<i>.feed_forward.
  SwigluFeedForward(const std::string& fqn, int64_t dim, int64_t hidden_dim);

  Tensor forward(const Tensor& h_tD, nn::RmsNorm& norm, const BlockContext& context, size_t level) override;
  // Everything: both products and, where w2 multiplies float8, its input in float8; the two products; nothing.
  nn::SaveLevels levels(Dtype compute) const override;
  void init_weights(const InitialWeights& init) override;
  parallel::TensorParallelPlan tensor_parallel_plan() const override;
  std::vector<CutSize> cut_sizes() const override { return {{"feed-forward columns", hidden_dim_}}; }

 private:
  int64_t hidden_dim_;
  nn::Linear w1_, w2_, w3_;
};

}  // namespace titanium::models::decoder
