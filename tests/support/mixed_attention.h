// A small decoder each of whose layers has another kind of attention: all that the decoder's halves can do.
#pragma once

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/latent_attention.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"

namespace titanium::test {

constexpr int64_t kMixedLayers = 5;

inline models::decoder::AttentionOptions mixed_options(int64_t layer) {
  models::decoder::AttentionOptions options;
  if (layer == 2) {
    options.biases = options.sinks = options.same_deviation = true;
    options.window = 5;
    options.pairs = ops::RopePairs::kHalves;
  } else if (layer == 3) {
    options.chunk = 10;
    options.head_norm_eps = 1e-5;
  } else {
    options.pairs = ops::RopePairs::kNone;
    options.temperature = models::decoder::QueryTemperature{.floor_scale = 4, .attn_scale = 0.3};
  }
  return options;
}

class MixedAttention : public models::decoder::Family {
 public:
  MixedAttention(int64_t seq_len, bool documents) {
    args_.dim = 32;
    args_.n_layers = kMixedLayers;
    args_.vocab_size = 2048;
    args_.max_seq_len = seq_len;
    if (documents) {
      args_.attn_type = "flex";
      args_.attn_mask_type = "block_causal";
    }
  }

  const models::decoder::Args& args() const override { return args_; }
  std::unique_ptr<models::decoder::Attention> attention(int64_t layer) const override {
    const std::string fqn = fmt::format("layers.{}.attention", layer);
    if (layer < 2) return std::make_unique<models::decoder::LatentAttention>(fqn, args_.dim, latent(layer));
    return std::make_unique<models::decoder::GroupedQueryAttention>(
        fqn, args_.dim, models::decoder::HeadArgs{.n_heads = 4, .n_kv_heads = 2, .head_dim = kHeadDim},
        mixed_options(layer));
  }
  std::unique_ptr<models::decoder::FeedForward> feed_forward(int64_t layer) const override {
    return std::make_unique<models::decoder::SwigluFeedForward>(fmt::format("layers.{}.feed_forward", layer), args_.dim,
                                                                64);
  }
  Tensor rope_table(Device device) const override {
    const ops::YarnScaling yarn = {.factor = 4, .original_max_position = 16, .concentration = 1.1};
    return ops::rope_table(kHeadDim, args_.max_seq_len, 1000, yarn, device);
  }
  std::string description() const override { return "{}"; }

 private:
  static constexpr int64_t kHeadDim = 8;
  static models::decoder::LatentArgs latent(int64_t layer) {
    return {.n_heads = 4,
            .q_lora_rank = layer == 0 ? 12 : 0,
            .kv_lora_rank = 10,
            .qk_nope_head_dim = 5,
            .qk_rope_head_dim = kHeadDim,
            .v_head_dim = 6,
            .softmax_scale = layer == 0 ? std::optional(0.5) : std::nullopt};
  }

  models::decoder::Args args_;
};

inline std::unique_ptr<models::decoder::Decoder> make_mixed_model(int64_t seq_len, bool documents = false) {
  return std::make_unique<models::decoder::Decoder>(std::make_shared<MixedAttention>(seq_len, documents));
}

}  // namespace titanium::test
