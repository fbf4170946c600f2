// Latent attention (DeepSeek's MLA): keys and values of all heads are made of one small latent per token, and a part of
// the keys that knows the position is shared by all heads. Shapes: H heads, N dims of a head without position, P with,
// V head dim of values, R latent dim.
#pragma once

#include "titanium/models/decoder/parts.h"
#include "titanium/ops/latent_qkv.h"

namespace titanium::models::decoder {

struct LatentArgs {
  int64_t n_heads = 16;
  int64_t q_lora_rank = 0;  // 0: queries have no latent
  int64_t kv_lora_rank = 512;
  int64_t qk_nope_head_dim = 128;
  int64_t qk_rope_head_dim = 64;  // the family's rope table is for heads of this size, in adjacent pairs
  int64_t v_head_dim = 128;
  double latent_norm_eps = 1e-5;
  std::optional<double> softmax_scale = std::nullopt;  // 1/sqrt(N+P) unless given; YaRN makes it larger

  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

class LatentAttention : public Attention {
 public:
  // `fqn` is layers.<i>.attention. Children: wq, or wq_a, q_norm and wq_b; wkv_a, kv_norm, wkv_b, wo.
  LatentAttention(const std::string& fqn, int64_t dim, const LatentArgs& args);

  Tensor forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) override;
  // The cache holds latents: R + P elements per token for all heads together. Queries are brought to the latent's space
  // instead of keys to theirs, and values are made of the mixed latents.
  Tensor decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                nn::KvCache& cache) override;
  void init_weights(const InitialWeights& init) override;
  parallel::TensorParallelPlan tensor_parallel_plan() const override;
  std::vector<CutSize> cut_sizes() const override { return {{"heads", args_.n_heads}}; }
  nn::CacheShape cache_shape() const override { return {1, args_.kv_lora_rank + args_.qk_rope_head_dim, 0}; }
  int64_t key_value_width() const override { return args_.n_heads * (args_.qk_head_dim() + args_.v_head_dim); }
  int64_t kept_bytes(Dtype compute) const override;
  int64_t score_multiplications(int64_t seq_len) const override {
    return args_.n_heads * (args_.qk_head_dim() + args_.v_head_dim) * seq_len;
  }

 private:
  ops::LatentQkvArgs projection(nn::RmsNorm& norm, const BlockContext& context);
  ops::SoftmaxArgs softmax() const { return {.scale = args_.softmax_scale}; }

  LatentArgs args_;
  std::unique_ptr<nn::Linear> wq_, wq_a_, wq_b_;  // the first, or the other two
  std::unique_ptr<nn::RmsNorm> q_norm_;
  nn::Linear wkv_a_;
  nn::RmsNorm kv_norm_;
  nn::Linear wkv_b_, wo_;
};

}  // namespace titanium::models::decoder
