// Tensor and sequence parallelism: which weight is cut how, and the exchange of rows between the products.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "titanium/ops/row_exchange.h"
#include "titanium/parallel/mesh.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

enum class TensorParallelStyle {
  kByColumn,    // the output dim of a linear layer, or the vocabulary of an embedding: dim 0 of the weight
  kByRow,       // the input dim of a linear layer: dim 1 of the weight
  kOnSequence,  // whole on every rank, applied to this rank's rows: its gradient is summed over the axis
};

// What happens to each module. A pattern is a module's name in which `*` stands for one component and {a,b} for
// alternatives: "layers.*.attention.{wq,wk,wv}".
struct TensorParallelRule {
  std::string_view pattern;
  TensorParallelStyle style;
};
using TensorParallelPlan = std::vector<TensorParallelRule>;

bool matches(std::string_view pattern, std::string_view name);

// Gives every parameter its part for rank `rank` of `ranks`; nothing may be materialised yet. Throws UsageError when a
// dim is not divisible, and is a bug when a parameter has no rule or several.
void cut_parameters(const std::vector<Parameter*>& parameters, const TensorParallelPlan& plan, int64_t rank,
                    int64_t ranks);

// The exchange of rows over `group`. With `pieces` > 1, exchanges next to a product overlap with it (asynchronous
// tensor parallelism).
std::unique_ptr<ops::RowExchange> make_row_exchange(comm::GroupPtr group, int64_t pieces);

// Sums the gradients of parameters that are whole on every rank of the tensor-parallel axis. Once a step, when all
// other reductions are done: sums may be taken in any order.
void sum_sequence_grads(const std::vector<Parameter*>& parameters, const Mesh& mesh);

// True if the mesh axis cuts it.
bool is_cut_by(const Parameter& parameter, std::string_view axis);

}  // namespace titanium::parallel
