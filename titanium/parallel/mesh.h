// The ranks of a run along named axes, with a group for each.
#pragma once

#include <map>
#include <memory>

#include "titanium/comm/world.h"
#include "titanium/parallel/parallel_dims.h"

namespace titanium::parallel {

class Mesh {
 public:
  // Makes the groups of the axes in use, those of experts where ep > 1; all ranks do so in the same order. `world`
  // outlives the mesh.
  Mesh(comm::World& world, const ParallelDims& dims);

  const ParallelDims& dims() const { return dims_; }
  comm::World& world() const { return world_; }
  int64_t size(std::string_view axis) const { return axis_size(dims_, axis); }
  int64_t rank(std::string_view axis) const { return axis_rank(dims_, axis, world_.rank()); }  // of this process

  // For tensors on the training device, and for tensors in host memory.
  const comm::GroupPtr& group(std::string_view axis) const;
  const comm::GroupPtr& host_group(std::string_view axis) const;

  // Reduces over the axis in place; the tensor may be on the training device or in host memory.
  void reduce(std::string_view axis, const Tensor& tensor, comm::Reduce op) const;

 private:
  comm::World& world_;
  ParallelDims dims_;
  std::map<std::string, comm::GroupPtr, std::less<>> groups_, host_groups_;
};

}  // namespace titanium::parallel
