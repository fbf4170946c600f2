#include "titanium/models/deepseek_v3/model.h"

#include <charconv>

#include "titanium/models/decoder/moe_feed_forward.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"
#include "titanium/models/decoder/weight_names.h"

namespace titanium::models::deepseek_v3 {
namespace {

decoder::NamesInBlock names_in_block(const Args& args) {
  decoder::NamesInBlock names = decoder::names_in_block_with_experts();
  names["attention.wq_a.weight"] = "self_attn.q_a_proj.weight";
  names["attention.q_norm.weight"] = "self_attn.q_a_layernorm.weight";
  names["attention.wq_b.weight"] = "self_attn.q_b_proj.weight";
  names["attention.wkv_a.weight"] = "self_attn.kv_a_proj_with_mqa.weight";
  names["attention.kv_norm.weight"] = "self_attn.kv_a_layernorm.weight";
  names["attention.wkv_b.weight"] = "self_attn.kv_b_proj.weight";
  names["moe.shared_experts.w1.weight"] = "mlp.shared_experts.gate_proj.weight";
  names["moe.shared_experts.w2.weight"] = "mlp.shared_experts.down_proj.weight";
  names["moe.shared_experts.w3.weight"] = "mlp.shared_experts.up_proj.weight";
  if (is_v3(args)) names["moe.expert_bias"] = "mlp.gate.e_score_correction_bias";
  return names;
}

class Weights : public decoder::NamedWeights {
 public:
  explicit Weights(const Args& args) : NamedWeights(names_in_block(args), args.tied_embeddings), args_(args) {}
  std::string config_json(Dtype dtype) const override { return to_config_json(args_, dtype); }
  // Layers after the last one predict further tokens; they are passed over.
  bool is_redundant(const std::string& name) const override {
    constexpr std::string_view kLayers = "model.layers.";
    int64_t layer = -1;
    if (name.starts_with(kLayers)) std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
    return layer >= args_.n_layers || NamedWeights::is_redundant(name);
  }

 private:
  Args args_;
};

class Family : public decoder::FamilyOf<Args, Weights> {
 public:
  explicit Family(const Args& args) : FamilyOf(args, fields()) {
    const double scale = 1 / std::sqrt(static_cast<double>(args.qk_head_dim()));
    args_.softmax_scale = args.yarn ? scale * args.yarn->score_factor() : scale;
  }

  std::unique_ptr<decoder::Attention> attention(int64_t layer) const override {
    return std::make_unique<decoder::LatentAttention>(fmt::format("layers.{}.attention", layer), args_.dim, args_);
  }
  std::unique_ptr<decoder::FeedForward> feed_forward(int64_t layer) const override {
    if (layer < args_.n_dense_layers) {
      return std::make_unique<decoder::SwigluFeedForward>(fmt::format("layers.{}.feed_forward", layer), args_.dim,
                                                          args_.inter_dim);
    }
    return std::make_unique<decoder::MoeFeedForward>(fmt::format("layers.{}.moe", layer), args_.dim, args_.moe);
  }
  Tensor rope_table(Device device) const override {
    const int64_t head_dim = args_.qk_rope_head_dim, positions = args_.max_seq_len;
    return args_.yarn ? ops::rope_table(head_dim, positions, args_.rope_theta, args_.yarn->table(), device)
                      : ops::rope_table(head_dim, positions, args_.rope_theta, std::nullopt, device);
  }
};

}  // namespace

DeepseekV3::DeepseekV3(const Args& args) : Decoder(std::make_shared<Family>(args)) {}

}  // namespace titanium::models::deepseek_v3
