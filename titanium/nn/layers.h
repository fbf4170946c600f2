// The layers that transformer blocks are made of. Shapes: T tokens, D model dim.
#pragma once

#include "titanium/nn/module.h"

namespace titanium::nn {

// weight [out, in], no bias.
class Linear : public Module {
 public:
  Linear(const std::string& fqn, int64_t in, int64_t out) : weight(fqn + ".weight", {out, in}) {
    weight.is_linear_weight = true;
    add(weight);
  }
  Parameter weight;
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
