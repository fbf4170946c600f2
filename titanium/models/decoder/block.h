// A block of a decoder: two norms and the halves that the family gives.
#pragma once

#include <memory>

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/parts.h"

namespace titanium::models::decoder {

class Block : public nn::Block {
 public:
  Block(int64_t layer, const Args& args, std::unique_ptr<Attention> attention,
        std::unique_ptr<FeedForward> feed_forward);

  // x is this rank's rows of [T, D].
  Tensor forward(const Tensor& x_tD, const BlockContext& context);
  Tensor decode(const Tensor& x_TD, const BlockContext& context, nn::KvCache& cache);
  void init_weights(uint64_t seed, const Args& args);

  // The levels of the feed-forward half, and as the last one only the block's input.
  nn::SaveLevels levels(Dtype compute) const override;
  double largest_load() const override { return feed_forward_->largest_load(); }

  const Attention& attention() const { return *attention_; }
  FeedForward& feed_forward() { return *feed_forward_; }
  std::vector<const Half*> halves() const { return {attention_.get(), feed_forward_.get()}; }
  // The block's own unit, with the parameters that no unit of its halves has, and the units of the halves.
  std::vector<nn::Unit*> units();
  const nn::Unit& unit() const { return *unit_; }

 private:
  Tensor forward_once(const Tensor& x_tD, const BlockContext& context);

  int64_t layer_;
  int64_t dim_;
  nn::RmsNorm attention_norm_;
  std::unique_ptr<Attention> attention_;
  nn::RmsNorm ffn_norm_;
  std::unique_ptr<FeedForward> feed_forward_;
  size_t level_of_input_;  // of levels(): only the input is kept
  std::unique_ptr<nn::Unit> unit_;
};

}  // namespace titanium::models::decoder
