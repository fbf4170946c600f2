#include "titanium/parallel/placement.h"

#include <map>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

bool contains(const auto& axes, std::string_view axis) { return std::ranges::find(axes, axis) != axes.end(); }

// The axes of the view, outermost first.
Axes all_axes(RankView view, const ParallelDims& dims) {
  const auto& [pipeline, replicate, shard, expert, tensor] = axes_of_view(view, dims);
  Axes axes = {pipeline, replicate, shard, expert, tensor};
  std::erase(axes, std::string_view());
  return axes;
}

// The option that sets the number of ranks of an axis that cuts.
std::string_view degree_option(std::string_view axis) {
  static const std::map<std::string_view, std::string_view> options = {
      {"tp", "parallelism.tensor_parallel_degree"},
      {"ep", "parallelism.expert_parallel_degree"},
      {"etp", "parallelism.expert_tensor_parallel_degree"},
      {"fsdp", "parallelism.data_parallel_shard_degree * context_parallel_degree"},
      {"efsdp", "the number of ranks that share the shards of experts"},
  };
  return options.at(axis);
}

void require_divisible(const Parameter& parameter, std::string_view axis, size_t dim, int64_t ranks) {
  const int64_t size = parameter.part.shape.at(dim);
  if (size % ranks == 0) return;
  throw UsageError(
      fmt::format("{} = {} does not divide dim {} of {}, which has {} elements. Use a degree that divides it.",
                  degree_option(axis), ranks, dim, parameter.fqn, size));
}

}  // namespace

const ViewAxes& axes_of_view(RankView view, const ParallelDims& dims) {
  static const ViewAxes dense = {"pp", "dp_replicate", "fsdp", "", "tp"};
  static const ViewAxes sparse = {"pp", "dp_replicate", "efsdp", "ep", "etp"};
  return view == RankView::kSparse && dims.ep > 1 ? sparse : dense;
}

AxisSets axis_sets(const Parameter& parameter, const ParallelDims& dims) {
  AxisSets sets;
  for (const std::string_view axis : all_axes(parameter.view, dims)) {
    if (axis_size(dims, axis) == 1) continue;
    const bool is_cut = axis == axes_of_view(parameter.view, dims).pipeline || is_cut_by(parameter, axis);
    (is_cut ? sets.cut : sets.replicated).push_back(axis);
  }
  return sets;
}

Axes axes_to_sum(const Parameter& parameter, const ParallelDims& dims) {
  const ViewAxes& view = axes_of_view(parameter.view, dims);
  Axes axes = axis_sets(parameter, dims).replicated;
  std::erase_if(axes, [&](std::string_view axis) {
    return axis == view.replicate || axis == view.shard || contains(parameter.equal_grads, axis);
  });
  return axes;
}

bool is_cut_by(const Parameter& parameter, std::string_view axis) {
  return std::ranges::any_of(parameter.placements, [&](const Placement& placement) { return placement.axis == axis; });
}

Replica replica_of(const Parameter& parameter, const ParallelDims& dims, int rank) {
  return replica_along(parameter, all_axes(parameter.view, dims), dims, rank);
}

Replica replica_along(const Parameter& parameter, const Axes& axes, const ParallelDims& dims, int rank) {
  Replica replica;
  for (const std::string_view axis : axis_sets(parameter, dims).replicated) {
    if (!contains(axes, axis)) continue;
    replica.place = replica.place * axis_size(dims, axis) + axis_rank(dims, axis, rank);
    replica.count *= axis_size(dims, axis);
  }
  return replica;
}

void cut(Parameter& parameter, std::string_view axis, int64_t dim, const ParallelDims& dims, int rank) {
  const int64_t ranks = axis_size(dims, axis);
  if (ranks == 1) return;
  const auto at = static_cast<size_t>(dim);
  require_divisible(parameter, axis, at, ranks);
  parameter.part.shape[at] /= ranks;
  parameter.part.offset[at] += axis_rank(dims, axis, rank) * parameter.part.shape[at];
  parameter.shard = parameter.part;
  parameter.placements.push_back({std::string(axis), dim});
}

void choose_shard_dim(Parameter& parameter, const ParallelDims& dims) {
  if (parameter.view != RankView::kSparse) return;
  const int64_t ranks = axis_size(dims, axes_of_view(parameter.view, dims).shard);
  if (parameter.part.shape[0] < ranks && parameter.part.shape[1] % ranks == 0) parameter.shard_dim = 1;
}

void shard(Parameter& parameter, const ParallelDims& dims, int rank) {
  const std::string_view axis = axes_of_view(parameter.view, dims).shard;
  const int64_t ranks = axis_size(dims, axis);
  const auto dim = static_cast<size_t>(parameter.shard_dim);
  if (dim != 0) require_divisible(parameter, axis, dim, ranks);
  const int64_t size = parameter.part.shape.at(dim), per_rank = (size + ranks - 1) / ranks;
  const int64_t first = std::min(size, axis_rank(dims, axis, rank) * per_rank);
  parameter.shard = parameter.part;
  parameter.shard.shape[dim] = std::min(per_rank, size - first);
  parameter.shard.offset[dim] += first;
  parameter.placements.push_back({std::string(axis), parameter.shard_dim});
}

}  // namespace titanium::parallel
