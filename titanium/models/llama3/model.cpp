#include "titanium/models/llama3/model.h"

#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"
#include "titanium/models/decoder/weight_names.h"

namespace titanium::models::llama3 {
namespace {

class Weights : public decoder::NamedWeights {
 public:
  // Hugging Face rotates the halves of a head, we rotate adjacent pairs.
  explicit Weights(const Args& args)
      : NamedWeights(decoder::dense_names_in_block(), args.tied_embeddings,
                     {"attention.wq.weight", "attention.wk.weight"}, args.head_dim),
        args_(args) {}
  std::string config_json(Dtype dtype) const override { return to_config_json(args_, dtype); }

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
    return std::make_unique<decoder::SwigluFeedForward>(fmt::format("layers.{}.feed_forward", layer), args_.dim,
                                                        args_.ffn_hidden_dim);
  }
  Tensor rope_table(Device device) const override {
    return ops::rope_table(args_.head_dim, args_.max_seq_len, args_.rope_theta, args_.rope_scaling, device);
  }
};

}  // namespace

Llama3::Llama3(const Args& args) : Decoder(std::make_shared<Family>(args)) {}

}  // namespace titanium::models::llama3
