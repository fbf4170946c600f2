// Rotated queries and keys, of which fewer than queries. Shapes: H heads, K key/value heads, E head dim.
#pragma once

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/parts.h"
#include "titanium/ops/norm_qkv_rope.h"

namespace titanium::models::decoder {

class GroupedQueryAttention : public Attention {
 public:
  // `fqn` is layers.<i>.attention.
  GroupedQueryAttention(const std::string& fqn, int64_t dim, const HeadArgs& args);

  Tensor forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) override;
  Tensor decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                nn::KvCache& cache) override;
  void init_weights(const InitialWeights& init) override;
  parallel::TensorParallelPlan tensor_parallel_plan() const override;
  std::vector<CutSize> cut_sizes() const override;
  nn::KeyValueShape key_value_shape() const override { return {args_.n_kv_heads, args_.head_dim}; }
  int64_t kept_bytes(Dtype compute) const override;
  int64_t score_multiplications(int64_t seq_len) const override { return args_.n_heads * 2 * args_.head_dim * seq_len; }

 protected:
  // What makes queries, keys and values out of the hidden states. A family may change it.
  virtual ops::NormQkvRopeArgs projection(nn::RmsNorm& norm, const BlockContext& context);

  HeadArgs args_;
  nn::Linear wq_, wk_, wv_, wo_;
};

}  // namespace titanium::models::decoder
