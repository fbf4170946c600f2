// A parameter knows its name, its global shape, which part of it is here, and its gradient.
#pragma once

#include <string>

#include "titanium/tensor/tensor.h"

namespace titanium {

// Note [Gradients are ours]
// Parameters are not autograd leaves that autograd fills. An operator that uses a parameter adds its weight gradient to
// `grad` inside its own backward: there it can accumulate in the GEMM, and it knows when the gradient is complete.
// `value` still says requires_grad, because that is what makes autograd record an operator whose other inputs (tokens,
// the first block's input) need no gradient.
class Parameter {
 public:
  // Describes a whole parameter; `materialize` allocates it.
  Parameter(std::string fqn, Shape global_shape);

  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  std::string fqn;     // torchtitan's name: layers.3.attention.wq.weight
  Shape global_shape;  // of the whole parameter, on all ranks together
  Shape offset;        // global index of the first element of `value`, per dim
  Tensor value;        // this rank's box of the global tensor: master copy, in training.dtype
  Tensor grad;         // undefined, or of `value`'s shape and dtype

  void materialize(Dtype dtype, Device device);

  // `value` in the dtype of the computation. Casts once after each change; the cast is kept until `value_changed`.
  Tensor in(Dtype dtype) const;
  // To be called by whoever writes to `value` (optimizer, initialisation, loading).
  void value_changed() { cast_ = Tensor(); }

  // grad += gradient, in grad's dtype.
  void accumulate(const Tensor& gradient);
  void zero_grad() { grad = Tensor(); }

 private:
  mutable Tensor cast_;
};

}  // namespace titanium
