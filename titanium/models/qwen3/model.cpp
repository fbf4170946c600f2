#include "titanium/models/qwen3/model.h"

#include "titanium/models/decoder/grouped_query_attention.h"
#include "titanium/models/decoder/moe_feed_forward.h"
#include "titanium/models/decoder/swiglu_feed_forward.h"
#include "titanium/models/decoder/weight_names.h"
#include "titanium/ops/init.h"

namespace titanium::models::qwen3 {
namespace {

class Attention : public decoder::GroupedQueryAttention {
 public:
  Attention(const std::string& fqn, const Args& args)
      : GroupedQueryAttention(fqn, args.dim, args),
        q_norm_(fqn + ".q_norm", args.head_dim, args.norm_eps),
        k_norm_(fqn + ".k_norm", args.head_dim, args.norm_eps) {
    add(q_norm_);
    add(k_norm_);
  }

  void init_weights(const decoder::InitialWeights& init) override {
    GroupedQueryAttention::init_weights(init);
    ops::init_constant(q_norm_.weight, 1);
    ops::init_constant(k_norm_.weight, 1);
  }
  // Each rank normalises its own heads with the whole weights: their gradients are summed.
  parallel::TensorParallelPlan tensor_parallel_plan() const override {
    parallel::TensorParallelPlan plan = GroupedQueryAttention::tensor_parallel_plan();
    plan.push_back({"layers.*.attention.{q_norm,k_norm}", parallel::TensorParallelStyle::kOnSequence});
    return plan;
  }
  int64_t kept_bytes(Dtype compute) const override {
    constexpr int64_t kFloat = 4;
    // q and k before their norms as well, with rstd.
    const int64_t head = args_.head_dim * static_cast<int64_t>(c10::elementSize(compute)) + kFloat;
    return GroupedQueryAttention::kept_bytes(compute) + (args_.n_heads + args_.n_kv_heads) * head;
  }

 protected:
  // Weights are in Hugging Face's order, as torchtitan has them for this family.
  ops::NormQkvRopeArgs projection(nn::RmsNorm& norm, const decoder::BlockContext& context) override {
    ops::NormQkvRopeArgs args = GroupedQueryAttention::projection(norm, context);
    args.pairs = ops::RopePairs::kHalves;
    args.head_norms.emplace(ops::HeadNorms{q_norm_.weight, k_norm_.weight, q_norm_.eps});
    return args;
  }

 private:
  nn::RmsNorm q_norm_, k_norm_;
};

decoder::NamesInBlock names_in_block() {
  decoder::NamesInBlock names = decoder::names_in_block_with_experts();
  names["attention.q_norm.weight"] = "self_attn.q_norm.weight";
  names["attention.k_norm.weight"] = "self_attn.k_norm.weight";
  return names;
}

class Weights : public decoder::NamedWeights {
 public:
  explicit Weights(const Args& args) : NamedWeights(names_in_block(), args.tied_embeddings), args_(args) {}
  std::string config_json(Dtype dtype) const override { return to_config_json(args_, dtype); }

 private:
  Args args_;
};

class Family : public decoder::FamilyOf<Args, Weights> {
 public:
  explicit Family(const Args& args) : FamilyOf(args, fields()) {}

  std::unique_ptr<decoder::Attention> attention(int64_t layer) const override {
    return std::make_unique<Attention>(fmt::format("layers.{}.attention", layer), args_);
  }
  std::unique_ptr<decoder::FeedForward> feed_forward(int64_t layer) const override {
    if (args_.moe) {
      return std::make_unique<decoder::MoeFeedForward>(fmt::format("layers.{}.moe", layer), args_.dim, *args_.moe);
    }
    return std::make_unique<decoder::SwigluFeedForward>(fmt::format("layers.{}.feed_forward", layer), args_.dim,
                                                        args_.ffn_hidden_dim);
  }
  Tensor rope_table(Device device) const override {
    return ops::rope_table(args_.head_dim, args_.max_seq_len, args_.rope_theta, args_.rope_scaling, device);
  }
};

}  // namespace

Qwen3::Qwen3(const Args& args) : Decoder(std::make_shared<Family>(args)) {}

}  // namespace titanium::models::qwen3
