// Autograd is libtorch's, its nodes are ours: an operator computes its outputs without recording and then records one
// node for all of it.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

using Tensors = std::vector<Tensor>;

// Gets the gradient of each output (undefined if none arrived) and returns that of each input, in the order of
// `record`. What the closure captures is what the operator saves; it is freed right after its one call. Never capture
// an output itself, only its `detach()`: the output owns the node that owns the closure.
using Backward = std::function<Tensors(const Tensors& output_grads)>;

// True if an operator on these inputs must be able to run backward. Ask before saving anything.
bool needs_grad(std::initializer_list<Tensor> inputs);

// Makes `outputs` (fresh tensors, no views) the results of one autograd node over `inputs`, if needs_grad(inputs).
void record(std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs, Backward backward);

// A gradient to overwrite: the one that arrived if nobody else holds its memory, else a copy.
Tensor own(const Tensor& gradient);

// x itself; in the backward `f` is called before its gradient goes on. Without a backward nothing happens.
Tensor on_backward(const Tensor& x, std::function<void()> f);

// Runs `f` now without saving anything but x, and again in the backward to get what its operators save. The result is
// bit-equal because the operators are deterministic functions of x.
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace titanium::ops
