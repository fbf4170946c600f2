// What a train step tells its data parallelism, and among which ranks it takes place.
#pragma once

#include <functional>
#include <vector>

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
  // Called before the forward of each micro-batch of a step.
  virtual void begin_micro_batch(bool /*last*/) {}
  // Called after the backward of each. After that of the last one, every gradient is the sum over all ranks, and the
  // current stream may use it.
  virtual void end_micro_batch() {}
  // From now on `reduced` is called with the parameters of a unit, or of several, as soon as their gradients are the
  // sums over all ranks of data parallelism: at the latest in `end_micro_batch`, and only for those that have
  // gradients. What it queues on the current stream, which may not be that of the computation, finds the gradients in
  // the place where the parameters are, and is done before anybody uses the parameters again. It may take the gradients
  // away. For one micro-batch a step. Returns false if nothing is reduced here: `reduced` is never called.
  using Reduced = std::function<void(const std::vector<Parameter*>&)>;
  // NOLINTNEXTLINE(performance-unnecessary-value-param): whoever overrides it keeps the function.
  virtual bool when_reduced(Reduced /*reduced*/) { return false; }
  // Called after the optimizer has written new weights.
  virtual void weights_changed() {}
};

}  // namespace titanium::parallel
