// What all ranks together make of their gradients once data parallelism is done: Note [Cut or replicated].
#pragma once

#include <functional>
#include <span>

#include "titanium/optim/grad_norm.h"
#include "titanium/parallel/mesh.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

// Sums the gradients of parameters that ranks hold alike outside of data parallelism, such as those of norms over the
// tensor-parallel axis. Once a step: sums may be taken in any order.
void sum_replicated_grads(const std::vector<Parameter*>& parameters, const Mesh& mesh);

// The L2 norm of the gradients of all parameters on all ranks, each element counted once; fp64, on the device of the
// gradients, only queued. All ranks ask together. A parameter that two stages of a pipeline hold is given by one of
// them alone. `squares` is the sum of squares over this rank's gradients of some parameters: of those that are there,
// unless someone has summed them before.
using SumOfSquares = std::function<Tensor(std::span<Parameter* const>)>;
Tensor global_grad_norm(const std::vector<Parameter*>& parameters, const Mesh& mesh,
                        const SumOfSquares& squares = optim::sum_of_squares);

}  // namespace titanium::parallel
