// The blocks of Flux. Shapes: B samples, L tokens of the text, S patches of the image, T = L + S, D hidden size,
// H heads, E head dim.
#pragma once

#include <memory>

#include "titanium/models/flux/args.h"
#include "titanium/nn/block.h"
#include "titanium/nn/layers.h"
#include "titanium/nn/unit.h"
#include "titanium/ops/attention/context_exchange.h"
#include "titanium/ops/modulation.h"

namespace titanium::models::flux {

struct BlockContext {
  Tensor text_rope, image_rope, rope;  // rows of the tokens here: those of the text, of the image, and both
  ops::ContextExchange* exchange;      // null: whole sequences are here
};

// The norms of the heads of queries and keys.
class HeadNorms : public nn::Module {
 public:
  HeadNorms(const std::string& fqn, int64_t head_dim);
  void init_weights();
  ops::HeadNorms norms() { return {query_.weight, key_.weight, query_.eps}; }

 private:
  nn::RmsNorm query_, key_;
};

// A block with its unit; what it maps is [x..., vec] to [x...].
class Block : public nn::Block {
 public:
  ops::Tensors run(const ops::Tensors& inputs, const BlockContext& context);
  virtual void init_weights(uint64_t seed) = 0;
  nn::Unit& unit() { return *unit_; }

 protected:
  Block(std::string name, const Args& args) : args_(args), name_(std::move(name)) {}
  void build_unit();  // after all parameters
  virtual ops::Tensors forward(const ops::Tensors& inputs, const BlockContext& context) = 0;
  // "everything" and "input", from the columns of D that a token keeps in the first.
  nn::SaveLevels levels_of_columns(Dtype compute, int64_t columns) const;

  const Args args_;
  const std::string name_;

 private:
  std::unique_ptr<nn::Unit> unit_;
};

// Image and text have weights of their own and attend together: (image [B, S, D], text [B, L, D], vec [B, D]) to image
// and text.
class DoubleBlock : public Block {
 public:
  DoubleBlock(int64_t number, const Args& args);
  void init_weights(uint64_t seed) override;
  nn::SaveLevels levels(Dtype compute) const override;

 protected:
  ops::Tensors forward(const ops::Tensors& inputs, const BlockContext& context) override;

 private:
  struct Stream {
    Stream(const std::string& fqn, const Args& args);
    nn::Linear modulation, qkv;
    HeadNorms norms;
    nn::Linear proj, mlp_in, mlp_out;
  };
  std::unique_ptr<Stream> image_, text_;
};

// Text and image as one sequence, attention beside the feed-forward: ([B, T, D], vec [B, D]) to [B, T, D].
class SingleBlock : public Block {
 public:
  SingleBlock(int64_t number, const Args& args);
  void init_weights(uint64_t seed) override;
  nn::SaveLevels levels(Dtype compute) const override;

 protected:
  ops::Tensors forward(const ops::Tensors& inputs, const BlockContext& context) override;

 private:
  nn::Linear modulation_, linear1_, linear2_;
  HeadNorms norms_;
};

ops::LinearLayer layer_of(nn::Linear& linear);
// Uniform as Xavier has it; biases are 0.
void init_xavier(nn::Linear& linear, uint64_t seed);
void init_zeros(nn::Linear& linear);

}  // namespace titanium::models::flux
