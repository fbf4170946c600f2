// What all ranks together make of their gradients once data parallelism is done: Note [Cut or replicated].
#pragma once

#include "titanium/parallel/mesh.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

// Sums the gradients of parameters that ranks hold alike outside of data parallelism, such as those of norms over the
// tensor-parallel axis. Once a step: sums may be taken in any order.
void sum_replicated_grads(const std::vector<Parameter*>& parameters, const Mesh& mesh);

// The L2 norm of the gradients of all parameters on all ranks, each element counted once; fp64, on the device of the
// gradients, only queued. All ranks ask together. A parameter that two stages of a pipeline hold is given by one of
// them alone.
Tensor global_grad_norm(const std::vector<Parameter*>& parameters, const Mesh& mesh);

}  // namespace titanium::parallel
