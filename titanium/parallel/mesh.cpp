#include "titanium/parallel/mesh.h"

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

using Names = std::vector<std::string_view>;

// The axes in use. They follow from the degrees alone, so that all ranks make their groups in the same order. The axes
// of experts come with expert parallelism: without it the sparse view is the dense one.
Names axes_in_use(Names axes, const ParallelDims& dims) {
  if (dims.ep > 1) axes.insert(axes.end(), {"efsdp", "ep", "etp"});
  return axes;
}

// Computation waits for the exchanges on these axes, which must not queue after the weights of the next unit.
bool needs_own_group(std::string_view axis) { return axis == "cp" || axis == "ep"; }

}  // namespace

Mesh::Mesh(comm::World& world, const ParallelDims& dims) : world_(world), dims_(dims) {
  // Axes with the same ranks share one group: a communicator costs memory and start-up time.
  std::map<std::vector<int>, comm::GroupPtr> known, known_on_host;
  for (const std::string_view axis : axes_in_use({"tp", "cp", "fsdp", "dp_replicate", "loss", "pp"}, dims)) {
    const std::vector<int> members = axis_members(dims, axis, world.rank());
    comm::GroupPtr own;
    comm::GroupPtr& group = needs_own_group(axis) && members.size() > 1 ? own : known[members];
    if (group == nullptr) group = world.group(std::string(axis), members);
    groups_.emplace(axis, group);
  }
  for (const std::string_view axis : axes_in_use({"tp", "fsdp", "loss", "batch", "pp", "world"}, dims)) {
    const std::vector<int> members = axis_members(dims, axis, world.rank());
    comm::GroupPtr& group = known_on_host[members];
    if (group == nullptr) group = world.host_group(std::string(axis), members);
    host_groups_.emplace(axis, group);
  }
}

const comm::GroupPtr& Mesh::group(std::string_view axis) const {
  const auto found = groups_.find(axis);
  TI_ASSERT(found != groups_.end(), "no group on axis {}", axis);
  return found->second;
}

const comm::GroupPtr& Mesh::host_group(std::string_view axis) const {
  const auto found = host_groups_.find(axis);
  TI_ASSERT(found != host_groups_.end(), "no host group on axis {}", axis);
  return found->second;
}

void Mesh::reduce(std::string_view axis, const Tensor& tensor, comm::Reduce op) const {
  if (size(axis) == 1) return;
  (tensor.is_cpu() ? host_group(axis) : group(axis))->all_reduce(tensor, op)->wait();
}

}  // namespace titanium::parallel
