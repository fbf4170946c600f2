// The layers that transformer blocks are made of. Shapes: T tokens, D model dim.
#pragma once

#include "titanium/nn/module.h"

namespace titanium::nn {

// weight [out, in]; a bias [out] if asked for.
class Linear : public Module {
 public:
  Linear(const std::string& fqn, int64_t in, int64_t out, bool with_bias = false) : weight(fqn + ".weight", {out, in}) {
    weight.is_linear_weight = true;
    add(weight);
    if (!with_bias) return;
    bias = std::make_unique<Parameter>(fqn + ".bias", Shape{out});
    add(*bias);
  }
  Parameter weight;
  std::unique_ptr<Parameter> bias;  // null: there is none
};

class Embedding : public Module {
 public:
  Embedding(const std::string& fqn, int64_t vocabulary, int64_t dim) : weight(fqn + ".weight", {vocabulary, dim}) {
    add(weight);
  }
  Parameter weight;
};

class RmsNorm : public Module {
 public:
  RmsNorm(const std::string& fqn, int64_t dim, double eps) : weight(fqn + ".weight", {dim}), eps(eps) { add(weight); }
  Tensor forward(const Tensor& x_TD);
  Parameter weight;
  double eps;
};

}  // namespace titanium::nn
