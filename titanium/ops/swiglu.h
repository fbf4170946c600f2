// silu(gate) * up, element by element, with silu(x) = x / (1 + exp(-x)). For operators that record a larger node.
#pragma once

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// [T, F] each, contiguous.
struct SwigluOutput {
  Tensor product_TF;
  Tensor amax;  // its largest magnitude, fp32, where our kernels find it on the way and it is wanted
};
SwigluOutput swiglu_forward(const Tensor& gate_TF, const Tensor& up_TF, bool with_amax = false);

struct SwigluGrads {
  Tensor gate_TF;
  Tensor up_TF;
  Tensor product_TF;          // the forward's result once more, the same bits; undefined where it is not wanted
  Tensor gate_amax, up_amax;  // as above
};
struct SwigluBackwardOptions {
  bool product = true;
  bool amax = false;
};
// Takes its arguments over: the results may lie in their memory.
SwigluGrads swiglu_backward(Tensor grad_product_TF, Tensor gate_TF, Tensor up_TF, SwigluBackwardOptions options = {});

}  // namespace titanium::ops
