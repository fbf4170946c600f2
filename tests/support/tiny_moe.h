// Small decoders with experts of every kind, to be trained on ranks that are threads.
#pragma once

#include "tests/support/tiny_run.h"
#include "titanium/models/decoder/decoder.h"
#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/moe_feed_forward.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"

namespace titanium::test {

struct TinyMoeArgs : models::decoder::Args, models::decoder::HeadArgs, models::decoder::MoeArgs {};

// One dense layer, then three with experts.
class TinyMoeFamily : public models::decoder::Family {
 public:
  explicit TinyMoeFamily(const TinyMoeArgs& args) : args_(args) {}

  const models::decoder::Args& args() const override { return args_; }
  std::unique_ptr<models::decoder::Attention> attention(int64_t layer) const override {
    return std::make_unique<models::decoder::GroupedQueryAttention>(fmt::format("layers.{}.attention", layer),
                                                                    args_.dim, args_);
  }
  std::unique_ptr<models::decoder::FeedForward> feed_forward(int64_t layer) const override {
    if (layer == 0) return std::make_unique<models::decoder::SwigluFeedForward>("layers.0.feed_forward", args_.dim, 64);
    return std::make_unique<models::decoder::MoeFeedForward>(fmt::format("layers.{}.moe", layer), args_.dim, args_);
  }
  Tensor rope_table(Device device) const override {
    return ops::rope_table(args_.head_dim, args_.max_seq_len, args_.rope_theta, args_.rope_scaling, device);
  }
  std::string description() const override { return "{}"; }

 private:
  TinyMoeArgs args_;
};

inline TinyMoeArgs tiny_moe() {
  TinyMoeArgs args;
  args.dim = 32;
  args.n_layers = 4;
  args.n_heads = args.n_kv_heads = 4;
  args.head_dim = 8;
  args.vocab_size = 2048;
  args.max_seq_len = tiny_config().training.seq_len;
  args.num_experts = 8;
  args.num_shared_experts = 1;
  args.top_k = 2;
  args.moe_hidden_dim = 24;
  args.score_func = "sigmoid";
  args.route_norm = true;
  args.score_before_experts = false;
  return args;
}

inline ModelMaker tiny_moe_maker(const TinyMoeArgs& args) {
  return [=] { return std::make_unique<models::decoder::Decoder>(std::make_shared<TinyMoeFamily>(args)); };
}

}  // namespace titanium::test
