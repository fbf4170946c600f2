// What a train step tells its data parallelism, and among which ranks it takes place.
#pragma once

#include "titanium/nn/unit.h"
#include "titanium/parallel/mesh.h"

namespace titanium::parallel {

// The ranks over which the parameters of a unit are sharded, and those that hold the same shards. At least one each.
struct DataParallelGroups {
  comm::GroupPtr shard, replicate;
};
// They follow from the view in which the parameters live; those of one unit live in the same. Its parameters are
// sharded, or there is one rank along the shard axis.
DataParallelGroups data_parallel_groups(const nn::Unit& unit, const Mesh& mesh);

// This class itself is the data parallelism of one rank: nothing to do.
class DataParallel {
 public:
  virtual ~DataParallel() = default;
  // Before the forward of each micro batch of a step.
  virtual void begin_micro_batch(bool /*last*/) {}
  // After the backward of each. After that of the last one, every gradient is the sum over all ranks, and the current
  // stream may use it.
  virtual void end_micro_batch() {}
  // After the optimizer has written new weights.
  virtual void weights_changed() {}
};

}  // namespace titanium::parallel
