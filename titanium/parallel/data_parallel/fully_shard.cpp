#include "titanium/parallel/data_parallel/fully_shard.h"

#include <c10/core/GradMode.h>

#include "titanium/parallel/data_parallel/float8_shards.h"

namespace titanium::parallel {
namespace {

bool reshards_after_forward(const nn::Unit& unit, const std::string& policy) {
  if (policy == "never" || unit.role == nn::UnitRole::kRoot) return false;
  // The head's backward follows its forward at once.
  return policy == "always" || unit.role != nn::UnitRole::kHead;
}

}  // namespace

class FullyShard::Hook : public nn::UnitHook {
 public:
  Hook(FullyShard& owner, size_t index) : owner_(owner), index_(index) {}

  void before_forward() override {
    owner_.note("forward", index_);
    // Inside a backward this unit is computed once more, and those after it are done.
    owner_.gather_and_prefetch(index_, owner_.backwards_ > 0 ? 0 : +1);
  }

  void after_forward() override {
    owner_.note("after forward", index_);
    if (owner_.members_[index_].reshard_after_forward || !c10::GradMode::is_enabled()) owner_.release(index_);
  }

  void before_backward() override {
    owner_.note("backward", index_);
    ++owner_.backwards_;
    owner_.gather_and_prefetch(index_, -1);
  }

  void after_backward() override {
    owner_.note("after backward", index_);
    --owner_.backwards_;
    if (!owner_.options_.hold_whole) owner_.release(index_);
    owner_.reduce(index_);
  }

 private:
  FullyShard& owner_;
  size_t index_;
};

FullyShard::FullyShard(const std::vector<nn::Unit*>& units, const Mesh& mesh, std::unique_ptr<ShardContext> context,
                       const FullyShardOptions& options)
    : context_(std::move(context)), options_(options) {
  for (size_t i = 0; i < units.size(); ++i) {
    for (Parameter* parameter : units[i]->parameters) {
      const Dtype stored = parameter->value.scalar_type();
      parameter->gather_around_use(options.reduce_once ? at::kFloat
                                                       : part_dtype(*parameter, stored, context_->compute_dtype));
    }
    members_.push_back(
        {.unit = units[i],
         .sharded = std::make_unique<ShardedUnit>(*units[i], data_parallel_groups(*units[i], mesh), *context_),
         .reshard_after_forward =
             !options.hold_whole && reshards_after_forward(*units[i], options.reshard_after_forward)});
    units[i]->enclose(std::make_shared<Hook>(*this, i));
  }
}

FullyShard::~FullyShard() = default;

void FullyShard::note(std::string_view event, size_t index) const {
  if (observer_) observer_(event, members_[index].unit->name);
}

// The unit's weights are needed now; those of its neighbour in the direction of the pass, if it has one, are needed
// next.
void FullyShard::gather_and_prefetch(size_t index, int direction) {
  const auto needs_weights = [&](size_t i) { return direction >= 0 || members_[i].unit->backward_uses_weights; };
  if (needs_weights(index)) members_[index].sharded->finish_gather();
  if (direction == 0) return;
  const size_t next = index + static_cast<size_t>(direction);  // wraps to a huge number below 0
  if (next >= members_.size() || !needs_weights(next)) return;
  note("gather", next);
  members_[next].sharded->start_gather();
}

void FullyShard::release(size_t index) {
  note("release", index);
  members_[index].sharded->release();
}

void FullyShard::reduce(size_t index) {
  if (options_.reduce_once && !last_) return;
  note("reduce", index);
  // Those that set out earlier had the time of a unit's backward: let them go on before the next one takes memory.
  advance_reductions();
  members_[index].sharded->start_reduce();
  reducing_.push_back(index);
}

void FullyShard::advance_reductions() {
  for (const size_t index : reducing_) {
    ShardedUnit& sharded = *members_[index].sharded;
    sharded.advance_reduce();
    if (sharded.is_reducing() || !reduced_) continue;
    const SideStream::Scope beside(context_->reduce_stream);
    if (is_offloaded()) wait_for_reductions();
    reduced_(members_[index].unit->parameters);
    sharded.drop_grad_memory();
  }
  std::erase_if(reducing_, [&](size_t i) { return !members_[i].sharded->is_reducing(); });
}

bool FullyShard::is_offloaded() const {
  return !context_->device.is_cpu() && members_[0].unit->parameters[0]->value.is_cpu();
}

// The host waits for what the stream of the reductions has queued: gradients that it will read.
void FullyShard::wait_for_reductions() {
  const SideStream::Scope beside(context_->reduce_stream);
  Fence reduced(context_->device);
  reduced.record();
  reduced.synchronize();
}

bool FullyShard::when_reduced(Reduced reduced) {
  reduced_ = std::move(reduced);
  return true;
}

void FullyShard::begin_micro_batch(bool last) {
  last_ = last;
  backwards_ = 0;
  // The values may just have been changed by the optimizer.
  Fence changed(context_->device);
  changed.record();
  const SideStream::Scope beside(context_->gather_stream);
  changed.wait();
}

void FullyShard::weights_changed() {
  if (!options_.precompute_float8_scales) return;
  // One reduction for all units that are sharded over the same ranks, in the order of the units.
  std::vector<std::pair<comm::Group*, std::vector<Parameter*>>> by_group;
  for (const Member& member : members_) {
    comm::Group* const group = member.sharded->groups().shard.get();
    auto found = std::ranges::find(by_group, group, [](const auto& entry) { return entry.first; });
    if (found == by_group.end()) found = by_group.insert(found, {group, {}});
    found->second.insert(found->second.end(), member.unit->parameters.begin(), member.unit->parameters.end());
  }
  for (const auto& [group, parameters] : by_group) find_weight_amax(parameters, *group, context_->device);
}

void FullyShard::end_micro_batch() {
  for (size_t i = members_.size(); i-- > 0;) {
    members_[i].sharded->release();
    if (members_[i].sharded->has_grads()) reduce(i);
  }
  while (!reducing_.empty()) advance_reductions();
  Fence reduced(context_->device);
  {
    const SideStream::Scope beside(context_->reduce_stream);
    reduced.record();
  }
  reduced.wait();
  if (is_offloaded()) reduced.synchronize();
}

}  // namespace titanium::parallel
