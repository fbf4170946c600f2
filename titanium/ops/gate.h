// What a block adds to its residual goes through a gate, a vector of the sample. Outside autograd. Shapes: B samples,
// S tokens, D model dim.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

// residual + gate * x
Tensor add_gated(const Tensor& residual_BSD, const Tensor& gate_BD, const Tensor& x_BSD);

struct GatedGrads {
  Tensor x_BSD, gate_BD;
};
GatedGrads gate_backward(const Tensor& grad_BSD, const Tensor& x_BSD, const Tensor& gate_BD);

}  // namespace titanium::ops
