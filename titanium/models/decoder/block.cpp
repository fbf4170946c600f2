#include "titanium/models/decoder/block.h"

#include <algorithm>

#include "titanium/ops/init.h"
#include "titanium/ops/record.h"

namespace titanium::models::decoder {

int64_t Half::multiplied_elements() const {
  int64_t count = 0;
  for (const Parameter* parameter : parameters()) count += volume(parameter->global_shape);
  return count;
}

Block::Block(int64_t layer, const Args& args, std::unique_ptr<Attention> attention,
             std::unique_ptr<FeedForward> feed_forward)
    : layer_(layer),
      dim_(args.dim),
      attention_norm_(fmt::format("layers.{}.attention_norm", layer), args.dim, args.norm_eps),
      attention_(std::move(attention)),
      ffn_norm_(fmt::format("layers.{}.ffn_norm", layer), args.dim, args.norm_eps),
      feed_forward_(std::move(feed_forward)),
      level_of_input_(feed_forward_->levels(at::kFloat).size()) {
  add(*attention_);
  add(*feed_forward_);
  add(attention_norm_);
  add(ffn_norm_);
  std::vector<Parameter*> own = parameters();
  for (Half* half : {static_cast<Half*>(attention_.get()), static_cast<Half*>(feed_forward_.get())}) {
    for (const nn::Unit* unit : half->units()) {
      std::erase_if(own, [&](Parameter* parameter) { return std::ranges::count(unit->parameters, parameter) > 0; });
    }
  }
  unit_ = std::make_unique<nn::Unit>(fmt::format("layers.{}", layer), nn::UnitRole::kBlock, std::move(own));
}

std::vector<nn::Unit*> Block::units() {
  std::vector<nn::Unit*> units = {unit_.get()};
  for (nn::Unit* unit : attention_->units()) units.push_back(unit);
  for (nn::Unit* unit : feed_forward_->units()) units.push_back(unit);
  return units;
}

Tensor Block::forward(const Tensor& x_tD, const BlockContext& context) {
  if (level != level_of_input_) return forward_once(x_tD, context);
  BlockContext twice = context;
  twice.kept_routing = std::make_shared<ops::KeptRouting>();
  return ops::recompute([twice, this](const Tensor& x) { return forward_once(x, twice); }, x_tD);
}

Tensor Block::forward_once(const Tensor& x_tD, const BlockContext& context) {
  const Tensor h_tD = attention_->forward(x_tD, attention_norm_, context);
  // While the whole block is recomputed, everything is kept.
  return feed_forward_->forward(h_tD, ffn_norm_, context, level == level_of_input_ ? 0 : level);
}

Tensor Block::decode(const Tensor& x_TD, const BlockContext& context, nn::KvCache& cache) {
  const Tensor h_TD = attention_->decode(x_TD, attention_norm_, context, layer_, cache);
  return feed_forward_->forward(h_TD, ffn_norm_, context, /*level=*/0);
}

void Block::init_weights(uint64_t seed, const Args& args) {
  const auto depth = static_cast<double>(args.depth_init ? layer_ + 1 : args.n_layers);
  const InitialWeights init{.seed = seed, .residual_std = 0.02 / std::sqrt(2.0 * depth)};
  attention_->init_weights(init);
  feed_forward_->init_weights(init);
  ops::init_constant(attention_norm_.weight, 1);
  ops::init_constant(ffn_norm_.weight, 1);
}

nn::SaveLevels Block::levels(Dtype compute) const {
  const auto element = static_cast<int64_t>(c10::elementSize(compute));
  constexpr int64_t kFloat = 4;
  // x and h with their rstd, and what attention keeps.
  const int64_t outside = 2 * dim_ * element + 2 * kFloat + attention_->kept_bytes(compute);
  // What was normalised and its gradient, the gradients of the block's output and of h, and those that the attention
  // half and the residual get.
  const int64_t temporaries = 6 * dim_ * element;
  nn::SaveLevels levels = feed_forward_->levels(compute);
  for (nn::SaveLevel& level : levels) {
    level.kept_bytes += outside;
    level.backward_bytes += temporaries;
    level.backward_bytes_beside_copies += temporaries;
  }
  const nn::SaveLevel everything = levels.front();
  const int64_t input = dim_ * element, recomputed = everything.kept_bytes - input;
  levels.push_back({.name = "input",
                    .kept_bytes = input,
                    .backward_bytes = everything.backward_bytes + recomputed,
                    .backward_row_bytes = everything.backward_row_bytes + everything.kept_row_bytes,
                    .copied_weights = everything.copied_weights,
                    .backward_bytes_beside_copies = everything.backward_bytes_beside_copies + recomputed});
  return levels;
}

}  // namespace titanium::models::decoder
