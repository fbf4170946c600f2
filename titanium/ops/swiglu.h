// silu(gate) * up, element by element, with silu(x) = x / (1 + exp(-x)). For operators that record a larger node.
#pragma once

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// [T, F] each, contiguous.
Tensor swiglu_forward(const Tensor& gate_TF, const Tensor& up_TF);

struct SwigluGrads {
  Tensor gate_TF;
  Tensor up_TF;
  Tensor product_TF;  // the forward's result once more, the same bits
};
// Takes its arguments over: the results may lie in their memory.
SwigluGrads swiglu_backward(Tensor grad_product_TF, Tensor gate_TF, Tensor up_TF);

}  // namespace titanium::ops
