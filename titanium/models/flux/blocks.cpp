#include "titanium/models/flux/blocks.h"

#include <cmath>

#include "titanium/ops/attention/attention.h"
#include "titanium/ops/attention/context_attention.h"
#include "titanium/ops/init.h"

namespace titanium::models::flux {
namespace {

constexpr double kHeadNormEps = 1e-6;

// The six vectors of a stream in a double block; a single block has the first three.
struct Vectors {
  explicit Vectors(const ops::Tensors& v) : attention{v[0], v[1]}, attention_gate(v[2]) {
    if (v.size() > 3) mlp = {v[3], v[4]}, mlp_gate = v[5];
  }
  ops::ShiftAndScale attention;
  Tensor attention_gate;
  ops::ShiftAndScale mlp;
  Tensor mlp_gate;
};

// Every token sees every token.
Tensor attend_to_all(const Tensor& q, const Tensor& k, const Tensor& v, const BlockContext& context) {
  const ops::Visible everything = {.causal = false};
  if (context.exchange != nullptr) return ops::context_attention(q, k, v, everything, *context.exchange);
  return ops::attention(q, k, v, everything);
}

}  // namespace

ops::LinearLayer layer_of(nn::Linear& linear) { return {linear.weight, linear.bias.get()}; }

void init_xavier(nn::Linear& linear, uint64_t seed) {
  const Shape& shape = linear.weight.global_shape;
  ops::init_uniform(linear.weight, seed, std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1])));
  if (linear.bias) ops::init_constant(*linear.bias, 0);
}

void init_zeros(nn::Linear& linear) {
  ops::init_constant(linear.weight, 0);
  ops::init_constant(*linear.bias, 0);
}

HeadNorms::HeadNorms(const std::string& fqn, int64_t head_dim)
    : query_(fqn + ".query_norm", head_dim, kHeadNormEps), key_(fqn + ".key_norm", head_dim, kHeadNormEps) {
  add(query_);
  add(key_);
}

void HeadNorms::init_weights() {
  ops::init_constant(query_.weight, 1);
  ops::init_constant(key_.weight, 1);
}

void Block::build_unit() { unit_ = std::make_unique<nn::Unit>(name_, nn::UnitRole::kBlock, parameters()); }

ops::Tensors Block::run(const ops::Tensors& inputs, const BlockContext& context) {
  return unit_->run(inputs, [&](const ops::Tensors& given) {
    if (level == 0) return forward(given, context);
    return ops::recompute([this, context](const ops::Tensors& again) { return forward(again, context); }, given);
  });
}

nn::SaveLevels Block::levels_of_columns(Dtype compute, int64_t columns) const {
  const auto element = static_cast<int64_t>(c10::elementSize(compute));
  const int64_t row = args_.hidden_size * element;
  // Mean and rstd of two norms, rstd of the heads of queries and keys, log-sum-exp.
  const int64_t kept = columns * row + 4 * (4 + 3 * args_.num_heads);
  // The largest of its nodes has the normalised input, its gradient and the wide gradient of a product beside it.
  const int64_t temporaries = (4 + 3) * row + 2 * args_.mlp_hidden() * element;
  return {{.name = "everything", .kept_bytes = kept, .backward_bytes = temporaries},
          {.name = "input", .kept_bytes = row, .backward_bytes = temporaries + kept - row}};
}

DoubleBlock::Stream::Stream(const std::string& fqn, const Args& args)
    : modulation(fqn + "_mod.lin", args.hidden_size, 6 * args.hidden_size, true),
      qkv(fqn + "_attn.qkv", args.hidden_size, 3 * args.hidden_size, args.qkv_bias),
      norms(fqn + "_attn.norm", args.head_dim()),
      proj(fqn + "_attn.proj", args.hidden_size, args.hidden_size, true),
      mlp_in(fqn + "_mlp.0", args.hidden_size, args.mlp_hidden(), true),
      mlp_out(fqn + "_mlp.2", args.mlp_hidden(), args.hidden_size, true) {}

DoubleBlock::DoubleBlock(int64_t number, const Args& args)
    : Block(fmt::format("double_blocks.{}", number), args),
      image_(std::make_unique<Stream>(name_ + ".img", args)),
      text_(std::make_unique<Stream>(name_ + ".txt", args)) {
  for (Stream* stream : {image_.get(), text_.get()}) {
    add(stream->modulation);
    add(stream->qkv);
    add(stream->norms);
    add(stream->proj);
    add(stream->mlp_in);
    add(stream->mlp_out);
  }
  build_unit();
}

void DoubleBlock::init_weights(uint64_t seed) {
  for (Stream* stream : {image_.get(), text_.get()}) {
    init_zeros(stream->modulation);
    for (nn::Linear* linear : {&stream->qkv, &stream->proj, &stream->mlp_in, &stream->mlp_out}) {
      init_xavier(*linear, seed);
    }
    stream->norms.init_weights();
  }
}

nn::SaveLevels DoubleBlock::levels(Dtype compute) const {
  // The input, queries, keys and values before norm and rope and after, what is attended, the projection, its sum with
  // the input, and the second product of the feed-forward; beside these the first one.
  const int64_t hidden = (args_.mlp_hidden() + args_.hidden_size - 1) / args_.hidden_size;
  return levels_of_columns(compute, 12 + hidden);
}

ops::Tensors DoubleBlock::forward(const ops::Tensors& inputs, const BlockContext& context) {
  const Tensor &image = inputs[0], &text = inputs[1], &vec = inputs[2];
  // One node for both, so that vec's gradient is summed in the same order where the block is recomputed.
  const ops::Tensors vectors =
      ops::modulation_vectors(vec, {layer_of(image_->modulation), layer_of(text_->modulation)}, 6);
  const Vectors of_image({vectors.begin(), vectors.begin() + 6}), of_text({vectors.begin() + 6, vectors.end()});
  const ops::ModulatedHeads heads = ops::modulated_heads(
      {{text, of_text.attention, layer_of(text_->qkv), text_->norms.norms(), context.text_rope},
       {image, of_image.attention, layer_of(image_->qkv), image_->norms.norms(), context.image_rope}},
      args_.num_heads);
  const Tensor attended = attend_to_all(heads.q_BTHE, heads.k_BTHE, heads.v_BTHE, context);
  const ops::Tensors sums = ops::gated_linears(attended, {{layer_of(text_->proj), of_text.attention_gate, text},
                                                          {layer_of(image_->proj), of_image.attention_gate, image}});
  const auto feed_forward = [](const Tensor& x, Stream& stream, const Vectors& vectors) {
    return ops::gated_feed_forward(x, vectors.mlp, vectors.mlp_gate, layer_of(stream.mlp_in), layer_of(stream.mlp_out));
  };
  return {feed_forward(sums[1], *image_, of_image), feed_forward(sums[0], *text_, of_text)};
}

SingleBlock::SingleBlock(int64_t number, const Args& args)
    : Block(fmt::format("single_blocks.{}", number), args),
      modulation_(name_ + ".modulation.lin", args.hidden_size, 3 * args.hidden_size, true),
      linear1_(name_ + ".linear1", args.hidden_size, 3 * args.hidden_size + args.mlp_hidden(), true),
      linear2_(name_ + ".linear2", args.hidden_size + args.mlp_hidden(), args.hidden_size, true),
      norms_(name_ + ".norm", args.head_dim()) {
  add(linear1_);
  add(linear2_);
  add(norms_);
  add(modulation_);
  build_unit();
}

void SingleBlock::init_weights(uint64_t seed) {
  init_xavier(linear1_, seed);
  init_xavier(linear2_, seed);
  norms_.init_weights();
  init_zeros(modulation_);
}

nn::SaveLevels SingleBlock::levels(Dtype compute) const {
  // The input, queries, keys and values before norm and rope, queries and keys after, what is attended, and the last
  // product; beside these the hidden columns of the feed-forward.
  const int64_t hidden = (args_.mlp_hidden() + args_.hidden_size - 1) / args_.hidden_size;
  return levels_of_columns(compute, 8 + hidden);
}

ops::Tensors SingleBlock::forward(const ops::Tensors& inputs, const BlockContext& context) {
  const Tensor &x = inputs[0], &vec = inputs[1];
  const Vectors vectors(ops::modulation_vectors(vec, {layer_of(modulation_)}, 3));
  const ops::ModulatedHeads heads =
      ops::modulated_heads({{x, vectors.attention, layer_of(linear1_), norms_.norms(), context.rope}}, args_.num_heads);
  const Tensor attended = attend_to_all(heads.q_BTHE, heads.k_BTHE, heads.v_BTHE, context);
  return {ops::gated_joint_output(attended, heads.rest, layer_of(linear2_), vectors.attention_gate, x)};
}

}  // namespace titanium::models::flux
