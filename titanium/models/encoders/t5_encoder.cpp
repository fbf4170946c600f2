#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "titanium/models/encoders/text_encoder.h"
#include "titanium/models/json_reader.h"

namespace titanium::models {
namespace {

struct Sizes {
  int64_t vocabulary, dim, head_dim, hidden, layers, heads, buckets, distance;
  double eps;
  bool gated;  // with GELU, else one product with ReLU
};

Sizes read_sizes(const EncoderConfig& from) {
  const JsonReader config(from.place, from.json);
  const std::string type = config.text_or("model_type", "t5");
  if (type != "t5") config.fail("model_type", "\"t5\"");
  const std::string feed_forward = config.text_or("feed_forward_proj", "relu");
  if (feed_forward != "relu" && feed_forward != "gated-gelu") {
    config.fail("feed_forward_proj", "\"relu\" or \"gated-gelu\"");
  }
  return {.vocabulary = config.size("vocab_size"),
          .dim = config.size("d_model"),
          .head_dim = config.size("d_kv"),
          .hidden = config.size("d_ff"),
          .layers = config.size("num_layers"),
          .heads = config.size("num_heads"),
          .buckets = config.size_or("relative_attention_num_buckets", 32),
          .distance = config.size_or("relative_attention_max_distance", 128),
          .eps = config.positive_or("layer_norm_epsilon", 1e-6),
          .gated = feed_forward == "gated-gelu"};
}

// The weights of a block, in the order in which they are kept.
struct Layer {
  explicit Layer(const std::vector<Tensor>& weights)
      : norm(weights.at(0)),
        q(weights.at(1)),
        k(weights.at(2)),
        v(weights.at(3)),
        o(weights.at(4)),
        feed_forward_norm(weights.at(5)),
        gate(weights.at(6)),
        out(weights.at(7)),
        in(weights.size() > 8 ? weights[8] : Tensor()) {}
  Tensor norm, q, k, v, o;
  Tensor feed_forward_norm;
  Tensor gate;  // the one that GELU or ReLU is applied to
  Tensor out;
  Tensor in;  // none without a gate
};

// The number of the bias for each pair of positions, [L, L]: half of the numbers for each direction, of which half are
// distances themselves and the others grow logarithmically up to the largest.
Tensor buckets_of(int64_t tokens, const Sizes& sizes, Device device) {
  const Tensor positions = at::arange(tokens, at::TensorOptions(at::kLong).device(device));
  const Tensor relative = positions.unsqueeze(0) - positions.unsqueeze(1);
  const int64_t half = sizes.buckets / 2, exact = half / 2;
  const Tensor distance = relative.abs();
  const double width =
      static_cast<double>(half - exact) / std::log(static_cast<double>(sizes.distance) / static_cast<double>(exact));
  const Tensor far = exact + (at::log(distance.to(at::kFloat) / static_cast<double>(exact)) * width).to(at::kLong);
  const Tensor bucket = at::where(distance.lt(exact), distance, at::minimum(far, at::full_like(far, half - 1)));
  return bucket + relative.gt(0).to(at::kLong) * half;
}

class T5Encoder : public TextEncoder {
 public:
  T5Encoder(const Sizes& sizes, const FrozenWeights& weights, const KeepFrozen& keep) : sizes_(sizes) {
    const int64_t inner = sizes.heads * sizes.head_dim;
    table_ = weights("shared.weight", {sizes.vocabulary, sizes.dim});
    for (int64_t i = 0; i < sizes.layers; ++i) {
      const auto get = [&](const char* name, const Shape& shape) {
        return weights(fmt::format("encoder.block.{}.layer.{}.weight", i, name), shape);
      };
      if (i == 0) bias_ = get("0.SelfAttention.relative_attention_bias", {sizes.buckets, sizes.heads});
      std::vector<Tensor> layer = {
          get("0.layer_norm", {sizes.dim}),
          get("0.SelfAttention.q", {inner, sizes.dim}),
          get("0.SelfAttention.k", {inner, sizes.dim}),
          get("0.SelfAttention.v", {inner, sizes.dim}),
          get("0.SelfAttention.o", {sizes.dim, inner}),
          get("1.layer_norm", {sizes.dim}),
          get(sizes.gated ? "1.DenseReluDense.wi_0" : "1.DenseReluDense.wi", {sizes.hidden, sizes.dim}),
          get("1.DenseReluDense.wo", {sizes.dim, sizes.hidden}),
      };
      if (sizes.gated) layer.push_back(get("1.DenseReluDense.wi_1", {sizes.hidden, sizes.dim}));
      layers_.push_back(keep(std::move(layer)));
    }
    norm_ = weights("encoder.final_layer_norm.weight", {sizes.dim});
  }

  Tensor encode(const Tensor& tokens_BL) const override {
    const c10::AutoGradMode no_grad(false);
    Tensor x = at::embedding(table_, tokens_BL);
    const Tensor bias_LLH = at::embedding(bias_, buckets_of(tokens_BL.size(1), sizes_, table_.device()));
    // Attention on a GPU reads a bias in place only where columns are next to each other.
    const Tensor bias = bias_LLH.permute({2, 0, 1}).contiguous().unsqueeze(0);
    FrozenFetch next = layers_.at(0)();
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer layer(next());
      if (i + 1 < layers_.size()) next = layers_[i + 1]();
      x = x + attended(layer, normalised(x, layer.norm), bias);
      x = x + fed_forward(layer, normalised(x, layer.feed_forward_norm));
    }
    return normalised(x, norm_);
  }
  int64_t width() const override { return sizes_.dim; }
  int64_t vocabulary() const override { return sizes_.vocabulary; }
  Device device() const override { return table_.device(); }

 private:
  Tensor normalised(const Tensor& x, const Tensor& weight) const {
    return at::rms_norm(x, {sizes_.dim}, weight, sizes_.eps);
  }
  Tensor attended(const Layer& layer, const Tensor& x, const Tensor& bias) const {
    const auto heads = [&](const Tensor& weight) {
      return at::linear(x, weight).unflatten(2, {sizes_.heads, -1}).transpose(1, 2);
    };
    // T5 does not scale its scores.
    const Tensor out =
        at::scaled_dot_product_attention(heads(layer.q), heads(layer.k), heads(layer.v),
                                         bias.expand({x.size(0), -1, -1, -1}), 0.0, /*is_causal=*/false, /*scale=*/1.0);
    return at::linear(out.transpose(1, 2).flatten(2), layer.o);
  }
  Tensor fed_forward(const Layer& layer, const Tensor& x) const {
    const Tensor hidden = at::linear(x, layer.gate);
    if (!sizes_.gated) return at::linear(at::relu(hidden), layer.out);
    return at::linear(at::gelu(hidden, "tanh") * at::linear(x, layer.in), layer.out);
  }

  Sizes sizes_;
  Tensor table_, bias_, norm_;
  std::vector<FrozenGroup> layers_;
};

}  // namespace

std::unique_ptr<TextEncoder> make_t5_encoder(const EncoderConfig& config, const FrozenWeights& weights,
                                             const KeepFrozen& keep) {
  return std::make_unique<T5Encoder>(read_sizes(config), weights, keep);
}

}  // namespace titanium::models
