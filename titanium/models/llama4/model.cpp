#include "titanium/models/llama4/model.h"

#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/moe_feed_forward.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"
#include "titanium/models/decoder/weight_names.h"

namespace titanium::models::llama4 {
namespace {

decoder::NamesInBlock names_in_block() {
  decoder::NamesInBlock names = decoder::dense_names_in_block();
  names["feed_forward.w1.weight"] = "feed_forward.gate_proj.weight";
  names["feed_forward.w2.weight"] = "feed_forward.down_proj.weight";
  names["feed_forward.w3.weight"] = "feed_forward.up_proj.weight";
  names["moe.router.gate.weight"] = "feed_forward.router.weight";
  names["moe.shared_experts.w1.weight"] = "feed_forward.shared_expert.gate_proj.weight";
  names["moe.shared_experts.w2.weight"] = "feed_forward.shared_expert.down_proj.weight";
  names["moe.shared_experts.w3.weight"] = "feed_forward.shared_expert.up_proj.weight";
  names["moe.experts.w1"] = names["moe.experts.w3"] = "feed_forward.experts.gate_up_proj";
  names["moe.experts.w2"] = "feed_forward.experts.down_proj";
  names["moe.expert_bias"] = "";
  return names;
}

class Weights : public decoder::NamedWeights {
 public:
  explicit Weights(const Args& args) : NamedWeights(names_in_block(), args.tied_embeddings), args_(args) {}

  // Matrices of experts are [in, out] there, and the columns of w3 follow those of w1 in one tensor. In folders of
  // models that see images as well, names have a prefix.
  std::vector<HuggingFacePiece> pieces(const std::string& fqn, const Shape& global_shape) const override {
    auto pieces = NamedWeights::pieces(fqn, global_shape);
    for (HuggingFacePiece& piece : pieces) {
      if (fqn.find(".moe.experts.") != std::string::npos) piece.transposed = true;
      if (fqn.ends_with(".w1") || fqn.ends_with(".w3")) {
        const int64_t out = global_shape[1];
        piece.whole_shape = {global_shape[0], global_shape[2], 2 * out};
        piece.begin = {0, 0, fqn.ends_with(".w3") ? out : 0};
      }
      piece.stand_in = "language_model." + piece.name;
    }
    return pieces;
  }
  std::string config_json(Dtype dtype) const override { return to_config_json(args_, dtype); }
  bool is_redundant(const std::string& name) const override {
    return name.starts_with("vision_model.") || name.starts_with("multi_modal_projector.") ||
           NamedWeights::is_redundant(name);
  }

 private:
  Args args_;
};

class Family : public decoder::FamilyOf<Args, Weights> {
 public:
  explicit Family(const Args& args) : FamilyOf(args, fields()) {}

  std::unique_ptr<decoder::Attention> attention(int64_t layer) const override {
    decoder::AttentionOptions options;
    if (has_rope(args_, layer)) {
      options.chunk = args_.fixed_attn_block_size;
      if (args_.use_qk_norm) options.head_norm_eps = args_.norm_eps;
    } else {
      options.pairs = ops::RopePairs::kNone;
      if (args_.attn_temperature_tuning) {
        options.temperature =
            decoder::QueryTemperature{.floor_scale = args_.floor_scale, .attn_scale = args_.attn_scale};
      }
    }
    return std::make_unique<decoder::GroupedQueryAttention>(fmt::format("layers.{}.attention", layer), args_.dim, args_,
                                                            options);
  }
  std::unique_ptr<decoder::FeedForward> feed_forward(int64_t layer) const override {
    if (has_experts(args_, layer)) {
      return std::make_unique<decoder::MoeFeedForward>(fmt::format("layers.{}.moe", layer), args_.dim, args_.moe);
    }
    return std::make_unique<decoder::SwigluFeedForward>(fmt::format("layers.{}.feed_forward", layer), args_.dim,
                                                        args_.ffn_hidden_dim);
  }
  Tensor rope_table(Device device) const override {
    return ops::rope_table(args_.head_dim, args_.max_seq_len, args_.rope_theta, args_.rope_scaling, device);
  }
};

}  // namespace

Llama4::Llama4(const Args& args) : Decoder(std::make_shared<Family>(args)) {}

}  // namespace titanium::models::llama4
