// Rotated queries and keys, of which fewer than queries. Shapes: H heads, K key/value heads, E head dim.
#pragma once

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/parts.h"
#include "titanium/ops/norm_qkv_rope.h"

namespace titanium::models::decoder {

// Queries of later tokens are multiplied by 1 + attn_scale * log(1 + floor((position + 1) / floor_scale)) (Llama 4).
struct QueryTemperature {
  double floor_scale = 8192;
  double attn_scale = 0.1;
};

// What a layer may have beside plain causal attention. Layers of one model may differ.
struct AttentionOptions {
  bool biases = false;  // of wq, wk, wv and wo
  bool sinks = false;   // a parameter `sinks` with one number per head: Note [A sink joins at the end]
  int64_t window = 0;   // a token sees so many tokens, itself included; 0: all earlier ones
  int64_t chunk = 0;    // a token sees its own chunk of so many positions; 0: everything
  ops::RopePairs pairs = ops::RopePairs::kAdjacent;            // kNone: the layer has no positions
  std::optional<double> head_norm_eps = std::nullopt;          // queries and keys are normalised after rope, no weight
  std::optional<QueryTemperature> temperature = std::nullopt;  // none: 1 for all tokens
  bool same_deviation = false;  // all parameters start with the deviation of the projection back (GPT-OSS)
};

class GroupedQueryAttention : public Attention {
 public:
  // `fqn` is layers.<i>.attention.
  GroupedQueryAttention(const std::string& fqn, int64_t dim, const HeadArgs& args,
                        const AttentionOptions& options = {});

  Tensor forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) override;
  Tensor decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                nn::KvCache& cache) override;
  void init_weights(const InitialWeights& init) override;
  parallel::TensorParallelPlan tensor_parallel_plan() const override;
  std::vector<CutSize> cut_sizes() const override;
  nn::CacheShape cache_shape() const override {
    return {args_.n_kv_heads, args_.head_dim, args_.head_dim, cache_window()};
  }
  int64_t key_value_width() const override { return 2 * args_.n_kv_heads * args_.head_dim; }
  int64_t kept_bytes(Dtype compute) const override;
  int64_t score_multiplications(int64_t seq_len) const override { return args_.n_heads * 2 * args_.head_dim * seq_len; }

 protected:
  // What makes queries, keys and values out of the hidden states. A family may change it.
  virtual ops::NormQkvRopeArgs projection(nn::RmsNorm& norm, const BlockContext& context);

  HeadArgs args_;
  nn::Linear wq_, wk_, wv_, wo_;

 private:
  // Queries, keys and values as attention takes them; the first token of this sequence has the position `first`.
  ops::Qkv project(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context, int64_t first);
  ops::Visible visible(const ops::DocumentsPtr& documents) const;
  // Chunks are counted from the first position on, so that with them all tokens are kept.
  int64_t cache_window() const { return options_.chunk > 0 ? 0 : options_.window; }

  AttentionOptions options_;
  std::unique_ptr<Parameter> sinks_;  // [H], or null
};

}  // namespace titanium::models::decoder
