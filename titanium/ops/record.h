// Autograd is libtorch's, its nodes are ours: an operator computes its outputs without recording and then records one
// node for all of it.
#pragma once

#include <functional>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

using Tensors = std::vector<Tensor>;

// Gets the gradient of each output (undefined if none arrived) and returns that of each input, in the order of
// `record`. What the closure captures is what the operator saves; it is freed right after its one call. Never capture
// an output itself, only its `detach()`: the output owns the node that owns the closure. Not called when no output has
// got a gradient.
using Backward = std::function<Tensors(const Tensors& output_grads)>;

// True if an operator on these inputs must be able to run backward. Ask before saving anything.
bool needs_grad(const Tensors& inputs);

// Makes `outputs` (fresh tensors, no views) the results of one autograd node over `inputs`, if needs_grad(inputs).
void record(const Tensors& inputs, const Tensors& outputs, Backward backward);

// A gradient to overwrite: the one that arrived if nothing else holds its memory, else a copy.
Tensor own(const Tensor& gradient);

// The inputs themselves; in the backward `f` is called once, when the gradients of all of them have arrived and before
// they go on. Without a backward nothing happens.
Tensors on_backward(const Tensors& inputs, std::function<void()> f);

// Runs `f` now without saving anything but its inputs, and again in the backward to get what its operators save. The
// result is bit-equal because the operators are deterministic functions of the inputs. Outputs are tensors of floating
// point; an input may be one of them.
Tensors recompute(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs);
Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace titanium::ops
