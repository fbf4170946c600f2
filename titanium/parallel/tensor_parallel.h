// Tensor and sequence parallelism: along which dim each weight is sharded, and the exchange of rows between the
// products.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "titanium/comm/group.h"
#include "titanium/ops/row_exchange.h"
#include "titanium/parallel/parallel_dims.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

enum class TensorParallelStyle {
  kByColumn,  // the output dim of a linear layer, or the vocabulary of an embedding: the last dim but one, or the only
  kByRow,     // the input dim of a linear layer: the last dim
  kOnSequence,  // whole on every rank, applied to this rank's rows: its gradient is summed over the axis
  kOnAllRows,   // whole on every rank, applied to all rows: every rank computes its whole gradient
};

// What happens to each module. A pattern is the name of a module, or of a parameter in it, which goes before that of
// its module: "layers.*.attention.wo.bias". In a name `*` stands for one component and {a,b} for alternatives:
// "layers.*.attention.{wq,wk,wv}".
struct TensorParallelRule {
  std::string_view pattern;
  TensorParallelStyle style;
};
using TensorParallelPlan = std::vector<TensorParallelRule>;

bool matches(std::string_view pattern, std::string_view name);

// Gives every parameter its part for world rank `rank`: experts (RankView::kSparse) are cut along dim 0 over the expert
// axis, then each parameter as its rule says over the tensor axis of its view. Nothing may be materialised yet. Throws
// UsageError when a dim is not divisible, and is a bug when a parameter has no rule or several.
void cut_parameters(const std::vector<Parameter*>& parameters, const TensorParallelPlan& plan, const ParallelDims& dims,
                    int rank);

// The exchange of rows over `group`. With `pieces` > 1, exchanges next to a product overlap with it (asynchronous
// tensor parallelism).
std::unique_ptr<ops::RowExchange> make_row_exchange(comm::GroupPtr group, int64_t pieces);

}  // namespace titanium::parallel
