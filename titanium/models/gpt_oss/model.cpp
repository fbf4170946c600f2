#include "titanium/models/gpt_oss/model.h"

#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/moe_feed_forward.h"
#include "titanium/models/decoder/weight_names.h"

namespace titanium::models::gpt_oss {
namespace {

decoder::NamesInBlock names_in_block() {
  decoder::NamesInBlock names = decoder::dense_names_in_block();
  for (const char* projection : {"q", "k", "v", "o"}) {
    names[fmt::format("attention.w{}.bias", projection)] = fmt::format("self_attn.{}_proj.bias", projection);
  }
  names["attention.sinks"] = "self_attn.sinks";
  names["moe.router.gate.weight"] = "mlp.router.weight";
  names["moe.router.gate.bias"] = "mlp.router.bias";
  names["moe.experts.mlp1_weight"] = "mlp.experts.gate_up_proj";
  names["moe.experts.mlp1_bias"] = "mlp.experts.gate_up_proj_bias";
  names["moe.experts.mlp2_weight"] = "mlp.experts.down_proj";
  names["moe.experts.mlp2_bias"] = "mlp.experts.down_proj_bias";
  names["moe.expert_bias"] = "";
  return names;
}

class Weights : public decoder::NamedWeights {
 public:
  explicit Weights(const Args& args) : NamedWeights(names_in_block(), args.tied_embeddings), args_(args) {}

  // Matrices of experts are [in, out] there.
  std::vector<HuggingFacePiece> pieces(const std::string& fqn, const Shape& global_shape) const override {
    auto pieces = NamedWeights::pieces(fqn, global_shape);
    if (fqn.ends_with("mlp1_weight") || fqn.ends_with("mlp2_weight")) pieces.front().transposed = true;
    return pieces;
  }
  std::string config_json(Dtype dtype) const override { return to_config_json(args_, dtype); }

 private:
  Args args_;
};

class Family : public decoder::FamilyOf<Args, Weights> {
 public:
  explicit Family(const Args& args) : FamilyOf(args, fields()) {}

  std::unique_ptr<decoder::Attention> attention(int64_t layer) const override {
    const decoder::AttentionOptions options{.biases = true,
                                            .sinks = true,
                                            .window = has_window(layer) ? args_.sliding_window_size : 0,
                                            .pairs = ops::RopePairs::kHalves,
                                            .same_deviation = true};
    return std::make_unique<decoder::GroupedQueryAttention>(fmt::format("layers.{}.attention", layer), args_.dim, args_,
                                                            options);
  }
  std::unique_ptr<decoder::FeedForward> feed_forward(int64_t layer) const override {
    return std::make_unique<decoder::MoeFeedForward>(fmt::format("layers.{}.moe", layer), args_.dim, args_.moe);
  }
  Tensor rope_table(Device device) const override {
    const int64_t positions = args_.max_seq_len;
    return args_.yarn ? ops::rope_table(args_.head_dim, positions, args_.rope_theta, args_.yarn->table(), device)
                      : ops::rope_table(args_.head_dim, positions, args_.rope_theta, std::nullopt, device);
  }
};

}  // namespace

GptOss::GptOss(const Args& args) : Decoder(std::make_shared<Family>(args)) {}

}  // namespace titanium::models::gpt_oss
