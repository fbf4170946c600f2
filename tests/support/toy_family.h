// A family of models that is in no release: what docs/models.md says, followed literally. Its second block differs from
// the others: its feed-forward layer is wider and keeps everything or nothing. At Hugging Face, if it were there, the
// first matrix of a feed-forward layer would be two tensors.
#pragma once

#include <map>

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"
#include "titanium/models/decoder/weight_names.h"
#include "titanium/models/model_spec.h"

namespace titanium::test::toy {

using namespace models;  // as if this were a folder of titanium/models

// 1. Arguments: a struct, flavors, one table of fields.
struct Args : decoder::Args, decoder::HeadArgs {
  int64_t ffn_hidden_dim = 64;
};

inline const std::map<std::string, Args>& flavors() {
  static const std::map<std::string, Args> flavors = [] {
    Args tiny;
    tiny.dim = 32;
    tiny.n_layers = 3;
    tiny.n_heads = tiny.n_kv_heads = 4;
    tiny.head_dim = 8;
    tiny.vocab_size = 2048;
    Args tied = tiny;
    tied.tied_embeddings = true;
    return std::map<std::string, Args>{{"tiny", tiny}, {"tied", tied}};
  }();
  return flavors;
}

inline const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = decoder::dense_fields<Args>(
      /*head_dim=*/[](const Args& args) { return args.dim / args.n_heads; }, /*norm_eps=*/1e-5, /*max_seq_len=*/64);
  return fields;
}

// 2. The halves of its blocks: attention as it is, a feed-forward layer that can keep less.
class AllOrNothing : public decoder::SwigluFeedForward {
 public:
  using SwigluFeedForward::SwigluFeedForward;
  nn::SaveLevels levels(Dtype compute) const override { return {SwigluFeedForward::levels(compute).front()}; }
};

// 3. Its names at Hugging Face.
class Weights : public decoder::NamedWeights {
 public:
  explicit Weights(const Args& args)
      : NamedWeights(decoder::dense_names_in_block(), args.tied_embeddings), args_(args) {}

  std::vector<HuggingFacePiece> pieces(const std::string& fqn, const Shape& global_shape) const override {
    const HuggingFacePiece whole = NamedWeights::pieces(fqn, global_shape).front();
    if (!fqn.ends_with(".w1.weight")) return {whole};
    const int64_t half = global_shape[0] / 2;
    HuggingFacePiece upper = whole, lower = whole;
    upper.name += ".upper";
    upper.box.shape[0] = half;
    lower.name += ".lower";
    lower.box.offset[0] = half;
    lower.box.shape[0] = global_shape[0] - half;
    return {upper, lower};
  }
  std::string config_json(Dtype dtype) const override {
    nlohmann::ordered_json json = decoder::config_json_frame("ToyForCausalLM", "toy", dtype);
    add_to_config_json(json, args_, fields());
    json["rope_theta"] = args_.rope_theta;
    return json.dump(2);
  }

 private:
  Args args_;
};

class Family : public decoder::FamilyOf<Args, Weights> {
 public:
  explicit Family(const Args& args) : FamilyOf(args, fields()) {}

  std::unique_ptr<decoder::Attention> attention(int64_t layer) const override {
    return std::make_unique<decoder::GroupedQueryAttention>(fmt::format("layers.{}.attention", layer), args_.dim,
                                                            args_);
  }
  std::unique_ptr<decoder::FeedForward> feed_forward(int64_t layer) const override {
    const std::string fqn = fmt::format("layers.{}.feed_forward", layer);
    if (layer == 1) return std::make_unique<AllOrNothing>(fqn, args_.dim, 2 * args_.ffn_hidden_dim);
    return std::make_unique<decoder::SwigluFeedForward>(fqn, args_.dim, args_.ffn_hidden_dim);
  }
  Tensor rope_table(Device device) const override {
    return ops::rope_table(args_.head_dim, args_.max_seq_len, args_.rope_theta, args_.rope_scaling, device);
  }
};

// 4. What the registry would get.
inline ModelSpec spec() {
  return {.name = "toy",
          .flavors = names_of(flavors()),
          .build = [](const config::Model& options, std::optional<int64_t> max_seq_len) -> std::unique_ptr<Model> {
            Args args = flavors().at(options.flavor);
            decoder::apply_options(args, options, max_seq_len);
            return std::make_unique<decoder::Decoder>(std::make_shared<Family>(args));
          },
          .hugging_face_types = {"toy"}};
}

}  // namespace titanium::test::toy
