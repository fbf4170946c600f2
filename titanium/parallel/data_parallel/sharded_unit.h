// One unit of fully sharded data parallelism (FSDP): its weights are all-gathered around each use, its gradients are
// reduce-scattered after its backward, each through one flat buffer.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>

#include "titanium/nn/unit.h"
#include "titanium/parallel/data_parallel/buffer_pool.h"
#include "titanium/parallel/data_parallel/data_parallel.h"

namespace titanium::parallel {

// Note [Flat buffers]
// A parameter's part is cut along its shard_dim, mostly dim 0, into pieces of ceil(size / n) rows, of which the last
// ones may be short or empty (along other dims all are full). A rank's flat buffer holds its piece of every parameter
// of the unit, padded to the full piece, one after the other; gathered, the buffers of all ranks lie side by side, and
// copying turns them into whole parameters. Gradients go the same way back. Padding is never read.
struct Segment {
  Parameter* parameter;
  int64_t elements;  // of one rank's piece
  int64_t offset;    // in a rank's flat buffer
  int64_t runs;      // of adjacent elements of the part in the piece, all equally long: the indices before shard_dim
  int64_t run_elements() const { return elements / runs; }
};

struct FlatLayout {
  std::vector<Segment> segments;
  int64_t ranks = 1;
  int64_t elements = 0;  // of one rank's flat buffer
};

// The dtype of a whole part and of its gradient: the compute dtype. Vectors (norms) keep the dtype that they are stored
// in: they are computed with in fp32, next to 1, where bfloat16 would lose small updates.
Dtype part_dtype(const Parameter& parameter, Dtype stored, Dtype compute);
FlatLayout gather_layout(const std::vector<Parameter*>& parameters, int64_t ranks, Dtype stored, Dtype compute);
// Gradients are summed in fp32.
FlatLayout reduce_layout(const std::vector<Parameter*>& parameters, int64_t ranks);

// What all units of a model share.
struct ShardContext {
  ShardContext(Device device, Dtype compute_dtype);
  Device device;
  Dtype compute_dtype;
  BufferPool pool;
  SideStream gather_stream, reduce_stream;
  int64_t whole_units = 0;       // gathered now
  int64_t most_whole_units = 0;  // at a time
};

// The parameters are materialised and may be given another place in memory.
class ShardedUnit {
 public:
  ShardedUnit(const nn::Unit& unit, DataParallelGroups groups, ShardContext& context);
  ~ShardedUnit();
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  // Begins to gather, if that has not happened; queues only.
  void start_gather();
  // The parameters may be used by what the current stream queues from now on.
  void finish_gather();
  // They are not used any more.
  void release();

  const DataParallelGroups& groups() const { return groups_; }

  bool has_grads() const;
  // The gradients of the parts, which the current stream has computed, set out to become those of the shards.
  void start_reduce();
  // Goes one step on: from the scattering to the sum over replicas, from there to the gradients of the parameters.
  void advance_reduce();
  bool is_reducing() const { return reduction_ != nullptr; }
  // The memory of gradients is kept from step to step; this gives it back.
  void drop_grad_memory() { std::ranges::fill(grad_memory_, Tensor()); }

 private:
  struct Reduction;
  void move_values_together();
  Tensor value_on_device(const Parameter& parameter) const;
  void copy_in(const Tensor& mine);
  void copy_out();
  Tensor whole_part(const Segment& segment) const;
  void copy_grads_in(const std::vector<Tensor>& grads, const Tensor& in);
  void add_to_grads(const Tensor& mine);

  ShardContext& context_;
  DataParallelGroups groups_;
  std::vector<Parameter*> parameters_;
  FlatLayout gather_;
  FlatLayout reduce_;
  Tensor home_;   // this rank's flat buffer, where the values live; undefined if they are stored in another way
  Tensor flat_;   // while gathering
  Tensor whole_;  // while gathered
  comm::Work gathering_;
  Fence gathered_;
  std::unique_ptr<Reduction> reduction_;
  std::vector<Tensor> grad_memory_;  // of each segment's parameter, kept over steps
};

}  // namespace titanium::parallel
