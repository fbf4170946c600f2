// Fully sharded data parallelism, with replicas of the shards outside (HSDP) where the replicate group has several
// ranks.
#pragma once

#include <memory>
#include <string_view>

#include "titanium/parallel/data_parallel/data_parallel.h"
#include "titanium/parallel/data_parallel/sharded_unit.h"

namespace titanium::parallel {

struct FullyShardOptions {
  std::string reshard_after_forward = "default";  // default: blocks but not the head; always; never
  // Gradients of parts are summed over the micro-batches of a step and reduced once, at the price of their memory.
  bool reduce_once = false;
  // Weights stay whole from their first use to the end of the step: micro-batches of a pipeline take turns.
  bool hold_whole = false;
  // The scales of all weights that travel as float8 are found with one reduction after each update. Otherwise those of
  // a unit are found together before its first gather.
  bool precompute_float8_scales = false;
};

// What a unit does, for tests and traces: "gather" when a gather is queued, "forward", "after forward", "backward",
// "after backward", "reduce" when a reduction is queued, "release".
using UnitObserver = std::function<void(std::string_view event, const std::string& unit)>;

// Installs hooks on the units, whose parameters are already sharded (parallel/placement.h), those of each unit over the
// axes of their view. While unit i computes, the weights of the next one are on their way (the next in forward order,
// or the one before in the backward), and the gradients of the last one. At most two units are whole at a time, besides
// those that stay whole by option: the root, and the head from its forward to its backward.
class FullyShard : public DataParallel {
 public:
  FullyShard(const std::vector<nn::Unit*>& units, const Mesh& mesh, std::unique_ptr<ShardContext> context,
             const FullyShardOptions& options);
  ~FullyShard() override;

  void begin_micro_batch(bool last) override;
  void end_micro_batch() override;
  bool when_reduced(Reduced reduced) override;
  void weights_changed() override;

  const ShardContext& context() const { return *context_; }
  void observe(UnitObserver observer) { observer_ = std::move(observer); }

 private:
  class Hook;
  struct Member {
    const nn::Unit* unit;
    std::unique_ptr<ShardedUnit> sharded;
    bool reshard_after_forward;
  };
  void gather_and_prefetch(size_t index, int direction);
  void release(size_t index);
  void reduce(size_t index);
  void advance_reductions();
  bool is_offloaded() const;  // parameters live in host memory
  void wait_for_reductions();
  void note(std::string_view event, size_t index) const;

  std::unique_ptr<ShardContext> context_;
  FullyShardOptions options_;
  std::vector<Member> members_;
  std::vector<size_t> reducing_;  // units with a reduction under way, oldest first
  bool last_ = true;
  int backwards_ = 0;  // units whose backward has begun and not ended
  Reduced reduced_;
  UnitObserver observer_;
};

}  // namespace titanium::parallel
