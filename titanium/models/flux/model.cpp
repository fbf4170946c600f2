#include "titanium/models/flux/model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>

#include "titanium/base/error.h"
#include "titanium/ops/init.h"
#include "titanium/ops/sequence_share.h"

namespace titanium::models::flux {
namespace {

constexpr int64_t kTimeColumns = 256;
constexpr double kLongestPeriod = 10000, kTimeFactor = 1000;

// exp(i * position * frequency) of positions [N, 3], in which each axis has pairs of its own: [N, E/2], complex64.
Tensor rope_of(const Tensor& positions_N3, const Args& args) {
  std::vector<Tensor> angles;
  for (size_t axis = 0; axis < args.axes_dim.size(); ++axis) {
    const int64_t dim = args.axes_dim[axis];
    const Tensor exponents = at::arange(0, dim, 2, at::kDouble) / static_cast<double>(dim);
    const Tensor frequencies = at::pow(args.theta, exponents).reciprocal();
    angles.push_back(positions_N3.select(1, static_cast<int64_t>(axis)).unsqueeze(1) * frequencies);
  }
  const Tensor all = at::cat(angles, 1);
  return at::polar(at::ones_like(all), all).to(at::kComplexFloat);
}

// (0, row, column) of every patch.
Tensor patch_positions(int64_t rows, int64_t columns) {
  const Tensor row = at::arange(rows, at::kDouble).unsqueeze(1).expand({rows, columns});
  const Tensor column = at::arange(columns, at::kDouble).expand({rows, columns});
  return at::stack({at::zeros({rows, columns}, at::kDouble), row, column}, 2).flatten(0, 1);
}

// cos, then sin, of 1000 t at 128 frequencies, [B, 256] in fp32.
Tensor time_embedding(const Tensor& times_B) {
  const int64_t half = kTimeColumns / 2;
  const Tensor numbers = at::arange(half, times_B.options().dtype(at::kFloat));
  const Tensor frequencies = at::exp(numbers * (-std::log(kLongestPeriod) / static_cast<double>(half)));
  const Tensor angles = (times_B.to(at::kFloat) * kTimeFactor).unsqueeze(1) * frequencies;
  return at::cat({at::cos(angles), at::sin(angles)}, 1);
}

}  // namespace

Flux::Embedder::Embedder(const std::string& fqn, int64_t in, int64_t out)
    : in_layer(fqn + ".in_layer", in, out, true), out_layer(fqn + ".out_layer", out, out, true) {}

Tensor Flux::Embedder::forward(const Tensor& x_BI) {
  return ops::embed_vector(x_BI, layer_of(in_layer), layer_of(out_layer));
}

Flux::Flux(const Args& args)
    : args_(args),
      names_(args),
      img_in_("img_in", args.in_channels, args.hidden_size, true),
      txt_in_("txt_in", args.context_in_dim, args.hidden_size, true),
      time_in_("time_in", kTimeColumns, args.hidden_size),
      vector_in_("vector_in", args.vec_in_dim, args.hidden_size),
      final_linear_("final_layer.linear", args.hidden_size, args.in_channels, true),
      final_modulation_("final_layer.adaLN_modulation.1", args.hidden_size, 2 * args.hidden_size, true) {
  const int64_t rotated = std::accumulate(args.axes_dim.begin(), args.axes_dim.end(), int64_t{0});
  if (args.num_heads * rotated != args.hidden_size) {
    throw UsageError(
        fmt::format("{} heads with {} rotated elements each do not make a hidden size of {}. Use sizes "
                    "whose product fits.",
                    args.num_heads, rotated, args.hidden_size));
  }
  if (args.guidance_embed) guidance_in_.emplace("guidance_in", kTimeColumns, args.hidden_size);
  std::vector<nn::Linear*> layers = {&img_in_, &txt_in_};
  for (Embedder* embedder : embedders()) layers.insert(layers.end(), {&embedder->in_layer, &embedder->out_layer});
  std::vector<Parameter*> inputs;
  for (nn::Linear* linear : layers) {
    add(*linear);
    for (Parameter* parameter : linear->parameters()) inputs.push_back(parameter);
  }
  inputs_unit_ = std::make_unique<nn::Unit>("inputs", nn::UnitRole::kEmbedding, std::move(inputs));
  inputs_unit_->backward_uses_weights = true;  // of the layers after silu
  for (int64_t i = 0; i < args.depth; ++i) blocks_.push_back(std::make_unique<DoubleBlock>(i, args));
  for (int64_t i = 0; i < args.depth_single_blocks; ++i) blocks_.push_back(std::make_unique<SingleBlock>(i, args));
  for (const auto& block : blocks_) add(*block);
  add(final_linear_);
  add(final_modulation_);
  std::vector<Parameter*> last = final_linear_.parameters();
  for (Parameter* parameter : final_modulation_.parameters()) last.push_back(parameter);
  head_unit_ = std::make_unique<nn::Unit>("final_layer", nn::UnitRole::kHead, std::move(last));
}

std::vector<Flux::Embedder*> Flux::embedders() {
  std::vector<Embedder*> all = {&time_in_, &vector_in_};
  if (guidance_in_) all.push_back(&*guidance_in_);
  return all;
}

std::unique_ptr<Model> Flux::part(const std::vector<ModelStage>& stages) const {
  if (stages.size() != 1 || !stages[0].is_first || !stages[0].is_last) {
    throw UsageError(
        "a Flux model is not cut into the stages of a pipeline. Use "
        "parallelism.pipeline_parallel_degree = 1, with more shards instead.");
  }
  return std::make_unique<Flux>(args_);
}

void Flux::check_tensor_parallel(int64_t degree) const {
  throw UsageError(
      fmt::format("parallelism.tensor_parallel_degree = {} cuts weights, and those of a Flux model are "
                  "not cut. Use 1, with more shards instead.",
                  degree));
}

schedule::ModelChildren Flux::children() const {
  schedule::ModelChildren children{
      .before = {"img_in", "time_in", "vector_in", "txt_in"}, .blocks = {}, .after = {"final_layer"}};
  if (guidance_in_) children.before.emplace_back("guidance_in");
  for (const auto& block : blocks_) children.blocks.push_back(block->unit().name);
  return children;
}

nn::SaveLevels Flux::levels_of(int64_t block) const {
  return blocks_[static_cast<size_t>(block)]->levels(compute_dtype);
}

std::vector<nn::Unit*> Flux::units() {
  std::vector<nn::Unit*> units = {inputs_unit_.get()};
  for (const auto& block : blocks_) units.push_back(&block->unit());
  units.push_back(head_unit_.get());
  return units;
}

void Flux::init_weights(uint64_t seed) {
  constexpr double kStd = 0.02, kUncut = 1e6;
  init_xavier(img_in_, seed);
  init_xavier(txt_in_, seed);
  for (Embedder* embedder : embedders()) {
    for (nn::Linear* linear : {&embedder->in_layer, &embedder->out_layer}) {
      ops::init_normal(linear->weight, seed, kStd, kUncut);
      ops::init_constant(*linear->bias, 0);
    }
  }
  for (const auto& block : blocks_) block->init_weights(seed);
  init_zeros(final_linear_);
  init_zeros(final_modulation_);
}

const BlockContext& Flux::context_of(const ImageBatch& batch) {
  const std::vector<int64_t> sizes = {batch.text_tokens, batch.rows, batch.columns};
  if (sizes == context_sizes_) return context_;
  const auto rows_here = [&](const Tensor& positions_N3) {
    const Tensor rope = rope_of(positions_N3, args_);
    return (exchange_ == nullptr ? rope : ops::share_of(rope, 0, exchange_->share())).to(device_);
  };
  const Tensor text = rows_here(at::zeros({batch.text_tokens, 3}, at::kDouble));
  const Tensor image = rows_here(patch_positions(batch.rows, batch.columns));
  context_ = {.text_rope = text, .image_rope = image, .rope = at::cat({text, image}, 0), .exchange = exchange_};
  context_sizes_ = sizes;
  return context_;
}

ops::Tensors Flux::embed(const ImageBatch& batch) {
  const Dtype dtype = compute_dtype;
  ops::Tensors inputs = {batch.latents_BSP.to(dtype), batch.text_BLC.to(dtype), batch.pooled_BY.to(dtype),
                         time_embedding(batch.times_B).to(dtype)};
  if (guidance_in_) inputs.push_back(time_embedding(at::full_like(batch.times_B, args_.guidance)).to(dtype));
  return inputs_unit_->run(inputs, [&](const ops::Tensors& x) -> ops::Tensors {
    Tensor vec_BD = time_in_.forward(x[3]) + vector_in_.forward(x[2]);
    if (guidance_in_) vec_BD = vec_BD + guidance_in_->forward(x[4]);
    return {ops::linear_with_bias(x[0], layer_of(img_in_)), ops::linear_with_bias(x[1], layer_of(txt_in_)), vec_BD};
  });
}

Tensor Flux::velocity(const ImageBatch& batch) {
  const BlockContext& context = context_of(batch);
  const ops::Tensors embedded = embed(batch);
  Tensor image_BSD = embedded[0], text_BLD = embedded[1];
  const Tensor& vec_BD = embedded[2];
  const auto first_single = blocks_.begin() + args_.depth;
  for (auto block = blocks_.begin(); block != first_single; ++block) {
    const ops::Tensors both = (*block)->run({image_BSD, text_BLD, vec_BD}, context);
    image_BSD = both[0], text_BLD = both[1];
  }
  Tensor x_BTD = at::cat({text_BLD, image_BSD}, 1);
  for (auto block = first_single; block != blocks_.end(); ++block) x_BTD = (*block)->run({x_BTD, vec_BD}, context)[0];
  const int64_t text_tokens = text_BLD.size(1);
  return head_unit_->run({x_BTD.narrow(1, text_tokens, x_BTD.size(1) - text_tokens), vec_BD},
                         [&](const ops::Tensors& x) -> ops::Tensors {
                           const ops::Tensors v = ops::modulation_vectors(x[1], {layer_of(final_modulation_)}, 2);
                           return {ops::modulated_linear(x[0], {v[0], v[1]}, layer_of(final_linear_))};
                         })[0];
}

ModelSize Flux::size(int64_t seq_len) const {
  ModelSize size;
  for (const Parameter* parameter : parameters()) size.parameters += volume(parameter->global_shape);
  const auto dim = static_cast<double>(args_.hidden_size), hidden = static_cast<double>(args_.mlp_hidden());
  const auto blocks = static_cast<double>(args_.blocks()), tokens = static_cast<double>(seq_len);
  const double per_token = blocks * (4 * dim * dim + 2 * dim * hidden);
  const double modulation =
      dim * dim * (12 * static_cast<double>(args_.depth) + 3 * static_cast<double>(args_.depth_single_blocks));
  size.flops_per_token = 6 * (per_token + modulation / tokens) + 12 * blocks * dim * tokens;
  return size;
}

int64_t Flux::head_bytes(int64_t tokens, int64_t /*weight_element*/) const {
  const auto element = static_cast<int64_t>(c10::elementSize(compute_dtype));
  // The normalised input and its gradient, and those of the output in fp32.
  return tokens * (4 * args_.hidden_size * element + 3 * args_.in_channels * 4);
}

}  // namespace titanium::models::flux
