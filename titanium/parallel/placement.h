// Over which axes of the mesh a parameter is sharded ("cut"), and over which it is replicated. Whatever places, sums,
// gathers or saves parameters asks here.
#pragma once

#include <string_view>
#include <vector>

#include "titanium/parallel/parallel_dims.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

// Note [Cut or replicated]
// Along each axis of its view (Note [Three views of the ranks]) a parameter is cut, so that every rank holds other
// elements of it, or it is replicated, so that all hold the same. The stages of a pipeline hold other parameters, which
// counts as cut. From this follows:
//   norm         Each element counts once: the first of the ranks that hold it alike counts it, and the sums of squares
//                are added over the axes that cut (global_grad_norm).
//   gradients    The ranks along an axis that replicates the parameter have seen other tokens, rows or heads, so that
//                their gradients are terms of one sum: over the data-parallel axes FSDP or DDP takes it, over the
//                others sum_replicated_grads. Where all ranks see the same, the gradients are equal and nothing is
//                summed; the parameter says so (Parameter::equal_grads).
//   checkpoints  What several ranks hold alike is saved once: they share the work (Note [Shares]).
// Axes are listed outermost first, and those with one rank are left out.
using Axes = std::vector<std::string_view>;
struct AxisSets {
  Axes cut;
  Axes replicated;
};
AxisSets axis_sets(const Parameter& parameter, const ParallelDims& dims);

// What the axes of a view are for. Data parallelism owns `replicate` and `shard`. Without expert parallelism the sparse
// view is the dense one: experts are then placed as other parameters are.
struct ViewAxes {
  std::string_view pipeline, replicate, shard;
  std::string_view expert;  // cuts dim 0 of stacked experts; empty in the dense view
  std::string_view tensor;
};
const ViewAxes& axes_of_view(RankView view, const ParallelDims& dims);

// The axes that are neither the pipeline's nor data parallelism's, over which the parameter's gradient is still to be
// summed once data parallelism is done.
Axes axes_to_sum(const Parameter& parameter, const ParallelDims& dims);

bool is_cut_by(const Parameter& parameter, std::string_view axis);

// Which of the ranks that hold the same elements `rank` is.
struct Replica {
  int64_t place = 0;
  int64_t count = 1;
};
Replica replica_of(const Parameter& parameter, const ParallelDims& dims, int rank);
// The same among the ranks that differ only along some axes.
Replica replica_along(const Parameter& parameter, const Axes& axes, const ParallelDims& dims, int rank);

// Both give the parameter what world rank `rank` holds; nothing may be materialised yet. An axis cuts what the axes
// before it have left, so several may cut one dim.
//
// `cut` cuts the part along `dim` into equal pieces; an axis with one rank does nothing. Throws UsageError when the
// size is not divisible.
void cut(Parameter& parameter, std::string_view axis, int64_t dim, const ParallelDims& dims, int rank);
// Stacked experts of which there are fewer here than ranks that share them are sharded along dim 1, if it is divisible,
// so that no rank has an empty shard. After all cuts, before `shard`.
void choose_shard_dim(Parameter& parameter, const ParallelDims& dims);
// `shard` cuts the part along the parameter's shard_dim, over the shard axis of its view, into pieces of which the last
// ones may be short or empty. Along another dim than 0 the pieces are equal: UsageError otherwise. All cuts come first.
void shard(Parameter& parameter, const ParallelDims& dims, int rank);

}  // namespace titanium::parallel
