#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/models/encoders/text_encoder.h"
#include "titanium/models/json_reader.h"

namespace titanium::models {
namespace {

struct Sizes {
  int64_t vocabulary, dim, hidden, layers, heads, positions, end_token;
  double eps;
  bool quick_gelu;  // x * sigmoid(1.702 x), else GELU
};

Sizes read_sizes(const EncoderConfig& from) {
  const JsonReader whole(from.place, from.json);
  const std::string type = whole.text_or("model_type", "clip_text_model");
  if (type != "clip" && type != "clip_text_model") whole.fail("model_type", "\"clip\" or \"clip_text_model\"");
  const JsonReader config = whole.has("text_config") ? whole.object("text_config") : whole;
  const std::string activation = config.text_or("hidden_act", "quick_gelu");
  if (activation != "quick_gelu" && activation != "gelu") {
    config.fail("hidden_act", "\"quick_gelu\" or \"gelu\"");
  }
  // What a config leaves out has the values of the first CLIP.
  return {.vocabulary = config.size_or("vocab_size", 49408),
          .dim = config.size_or("hidden_size", 512),
          .hidden = config.size_or("intermediate_size", 2048),
          .layers = config.size_or("num_hidden_layers", 12),
          .heads = config.size_or("num_attention_heads", 8),
          .positions = config.size_or("max_position_embeddings", 77),
          .end_token = config.count_or("eos_token_id", 49407),
          .eps = config.positive_or("layer_norm_eps", 1e-5),
          .quick_gelu = activation == "quick_gelu"};
}

struct Affine {
  Tensor weight, bias;
  Tensor operator()(const Tensor& x) const { return at::linear(x, weight, bias); }
};

struct Layer {
  Affine norm1, q, k, v, out, norm2, fc1, fc2;
};

// Published files made before the id was known say 2, and mean the largest id of a text.
constexpr int64_t kUnknownEnd = 2;

class ClipEncoder : public TextEncoder {
 public:
  ClipEncoder(const Sizes& sizes, const FrozenWeights& weights) : sizes_(sizes) {
    const auto affine = [&](const std::string& name, const Shape& shape) -> Affine {
      return {weights(name + ".weight", shape), weights(name + ".bias", {shape[0]})};
    };
    const int64_t dim = sizes.dim;
    table_ = weights("text_model.embeddings.token_embedding.weight", {sizes.vocabulary, dim});
    positions_ = weights("text_model.embeddings.position_embedding.weight", {sizes.positions, dim});
    for (int64_t i = 0; i < sizes.layers; ++i) {
      const std::string in = fmt::format("text_model.encoder.layers.{}.", i);
      layers_.push_back({affine(in + "layer_norm1", {dim}), affine(in + "self_attn.q_proj", {dim, dim}),
                         affine(in + "self_attn.k_proj", {dim, dim}), affine(in + "self_attn.v_proj", {dim, dim}),
                         affine(in + "self_attn.out_proj", {dim, dim}), affine(in + "layer_norm2", {dim}),
                         affine(in + "mlp.fc1", {sizes.hidden, dim}), affine(in + "mlp.fc2", {dim, sizes.hidden})});
    }
    norm_ = affine("text_model.final_layer_norm", {dim});
  }

  Tensor encode(const Tensor& tokens_BL) const override {
    const c10::AutoGradMode no_grad(false);
    const int64_t length = tokens_BL.size(1);
    TI_CHECK(length <= sizes_.positions, "a text of {} tokens is longer than the encoder's {} positions. Use fewer.",
             length, sizes_.positions);
    Tensor x = at::embedding(table_, tokens_BL) + positions_.narrow(0, 0, length);
    for (const Layer& layer : layers_) {
      x = x + attended(layer, normalised(x, layer.norm1));
      const Tensor hidden = layer.fc1(normalised(x, layer.norm2));
      x = x + layer.fc2(sizes_.quick_gelu ? hidden * at::sigmoid(hidden * 1.702) : at::gelu(hidden));
    }
    const Tensor rows = at::arange(tokens_BL.size(0), tokens_BL.options());
    return normalised(x, norm_).index({rows, end_of(tokens_BL)});
  }
  int64_t width() const override { return sizes_.dim; }
  int64_t vocabulary() const override { return sizes_.vocabulary; }
  Device device() const override { return table_.device(); }

 private:
  Tensor normalised(const Tensor& x, const Affine& norm) const {
    return at::layer_norm(x, {sizes_.dim}, norm.weight, norm.bias, sizes_.eps);
  }
  Tensor attended(const Layer& layer, const Tensor& x) const {
    const auto heads = [&](const Affine& affine) { return affine(x).unflatten(2, {sizes_.heads, -1}).transpose(1, 2); };
    const Tensor out = at::scaled_dot_product_attention(heads(layer.q), heads(layer.k), heads(layer.v), {}, 0.0,
                                                        /*is_causal=*/true);
    return layer.out(out.transpose(1, 2).flatten(2));
  }
  // The first token that ends the text, [B].
  Tensor end_of(const Tensor& tokens_BL) const {
    if (sizes_.end_token == kUnknownEnd) return tokens_BL.argmax(1);
    return tokens_BL.eq(sizes_.end_token).to(at::kInt).argmax(1);
  }

  Sizes sizes_;
  Tensor table_, positions_;
  std::vector<Layer> layers_;
  Affine norm_;
};

}  // namespace

std::unique_ptr<TextEncoder> make_clip_encoder(const EncoderConfig& config, const FrozenWeights& weights) {
  return std::make_unique<ClipEncoder>(read_sizes(config), weights);
}

}  // namespace titanium::models
