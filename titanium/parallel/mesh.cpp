#include "titanium/parallel/mesh.h"

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

// Expert axes come with expert parallelism.
constexpr std::string_view kAxes[] = {"tp", "cp", "fsdp", "dp_replicate", "loss", "pp"};
constexpr std::string_view kHostAxes[] = {"tp", "fsdp", "loss", "batch", "pp", "world"};

}  // namespace

Mesh::Mesh(comm::World& world, const ParallelDims& dims) : world_(world), dims_(dims) {
  // Axes with the same ranks share one group: a communicator costs memory and start-up time. The axis cp does not:
  // attention waits for its exchanges, which must not queue behind the weights of the next unit.
  std::map<std::vector<int>, comm::GroupPtr> known, known_on_host;
  for (const std::string_view axis : kAxes) {
    const std::vector<int> members = axis_members(dims, axis, world.rank());
    comm::GroupPtr own;
    comm::GroupPtr& group = axis == "cp" && members.size() > 1 ? own : known[members];
    if (group == nullptr) group = world.group(std::string(axis), members);
    groups_.emplace(axis, group);
  }
  for (const std::string_view axis : kHostAxes) {
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
