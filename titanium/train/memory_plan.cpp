#include "titanium/train/memory_plan.h"

#include <ranges>

#include "titanium/base/error.h"
#include "titanium/parallel/context_parallel.h"
#include "titanium/parallel/data_parallel/float8_shards.h"
#include "titanium/parallel/data_parallel/sharded_unit.h"
#include "titanium/parallel/placement.h"

namespace titanium::train {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr int64_t kReduceElement = 4;  // gradients are reduced in fp32

int64_t bytes(Dtype dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

// Bytes per element of the copies of a weight that products use: in float8 one for each of two products, where they are
// kept; otherwise a copy in the compute dtype, unless the weight is stored in it.
int64_t copy_bytes(const Parameter& parameter, Dtype at_hand, Dtype compute) {
  if (parameter.float8) return parameter.float8->keeps_copies ? 2 : 0;
  return at_hand == compute ? 0 : bytes(compute);
}

// What a unit takes on all ranks together.
struct UnitSize {
  int64_t elements = 0;    // of its gradients
  int64_t travelling = 0;  // bytes that are gathered; 0 where one rank has the whole unit
  int64_t whole = 0;       // bytes once it is gathered, with the copies that are made then
};

UnitSize size_of(const nn::Unit& unit, int64_t ranks, Dtype stored, Dtype compute) {
  const int64_t gathered =
      ranks * parallel::gather_layout(unit.parameters, ranks, stored, compute).elements * bytes(compute);
  UnitSize size{.elements = ranks * parallel::reduce_layout(unit.parameters, ranks).elements,
                .travelling = ranks > 1 ? gathered : 0,
                .whole = gathered};
  for (const Parameter* parameter : unit.parameters) {
    if (parallel::travels_as_float8(*parameter, compute)) continue;
    size.whole += volume(parameter->part.shape) * copy_bytes(*parameter, compute, compute);
  }
  return size;
}

struct LargestUnits {
  UnitSize block;
  UnitSize outer;     // embedding, head or root
  int64_t whole = 0;  // bytes of all units
};

LargestUnits largest_units(models::Model& model, const parallel::ParallelDims& dims, Dtype stored) {
  LargestUnits largest;
  for (const nn::Unit* unit : model.units()) {
    const int64_t ranks = axis_size(dims, parallel::axes_of_view(unit->parameters.at(0)->view, dims).shard);
    const UnitSize size = size_of(*unit, ranks, stored, model.compute_dtype);
    UnitSize& most = unit->role == nn::UnitRole::kBlock ? largest.block : largest.outer;
    most = {std::max(most.elements, size.elements), std::max(most.travelling, size.travelling),
            std::max(most.whole, size.whole)};
    largest.whole += size.whole;
  }
  return largest;
}

// Whether gradients of whole parts stay from micro-batch to micro-batch until they are reduced, with FSDP.
bool keeps_whole_grads(const config::Parallelism& options, const parallel::ParallelDims& dims) {
  return options.fsdp_reduce_once || dims.pp > 1;
}

// Two blocks and one outer unit are whole at a time, and one unit of each kind is on its way; with one rank the way
// and the destination are the same buffer. See docs/distributed.md.
void plan_sharding(models::Model& model, const config::Parallelism& options, const parallel::ParallelDims& dims,
                   Dtype stored, MemoryPlan& plan) {
  const LargestUnits largest = largest_units(model, dims, stored);
  plan.computed_copy = 2 * largest.block.whole + largest.outer.whole;
  plan.communication = largest.block.travelling + largest.outer.travelling;
  // Gradients of parts and their way: one unit of each kind.
  const int64_t parts = largest.block.elements + largest.outer.elements;
  plan.communication += parts * (bytes(model.compute_dtype) + kReduceElement);
  const bool pipeline = dims.pp > 1;
  const bool stays_whole =
      options.fsdp_reshard_after_forward == "never" || (pipeline && options.fsdp_reshard_after_forward == "default");
  int64_t all = 0;
  for (const Parameter* parameter : model.parameters()) all += volume(parameter->part.shape);
  if (stays_whole) plan.computed_copy = largest.whole;
  // What travels as float8 is kept until the weight changes.
  for (const Parameter* parameter : model.parameters()) {
    if (parallel::travels_as_float8(*parameter, model.compute_dtype))
      plan.computed_copy += volume(parameter->shard.shape);
  }
  if (keeps_whole_grads(options, dims)) plan.communication += all * kReduceElement;
}

int64_t exchange_bytes(const models::Model& model, const JobConfig& config, const parallel::ParallelDims& dims,
                       int64_t micro_batch, int64_t tokens) {
  const config::Parallelism& options = config.parallelism;
  const auto buffers = exchange_buffers(
      parallel::sequence_share(options, dims, /*rank=*/0), parallel::rotate_method(options),
      {.batch = micro_batch, .tokens = tokens / dims.cp, .width = model.costs().key_value_width() / dims.tp});
  return buffers.values * bytes(model.compute_dtype) + buffers.gradients * kReduceElement;
}

// Tokens at a time on this rank.
struct Tokens {
  int64_t kept = 0;      // whose activations wait for the backward
  int64_t computed = 0;  // in one micro-batch
};

// Elements that are stored here.
int64_t count_stored(const std::vector<Parameter*>& parameters) {
  int64_t count = 0;
  for (const Parameter* parameter : parameters) count += volume(parameter->shard.shape);
  return count;
}

struct BlockMemory {
  int64_t parameters = 0;  // elements that are stored here
  nn::SaveLevel level;
  double largest_load = 1;
  int64_t working = 0;  // in its backward
};

std::vector<BlockMemory> blocks_here(models::Model& model, const std::vector<size_t>& levels) {
  std::vector<BlockMemory> blocks;
  for (int64_t i = 0; i < model.block_count(); ++i) {
    const nn::Block* block = model.block(i);
    if (block == nullptr) continue;
    const size_t level = levels[static_cast<size_t>(i)];
    blocks.push_back({.parameters = count_stored(block->parameters()),
                      .level = block->levels(model.compute_dtype)[level],
                      .largest_load = block->largest_load()});
  }
  return blocks;
}

// Copies of weights, which are smaller than the gradients of these weights, take the room of those unless that is taken
// already.
void plan_working(std::vector<BlockMemory>& blocks, const Tokens& tokens, bool has_weight_grads) {
  for (BlockMemory& block : blocks) {
    const nn::SaveLevel& level = block.level;
    block.working = tokens.computed * level.backward_bytes;
    if (!has_weight_grads || level.copied_weights == 0) continue;
    const int64_t with_copies = level.copied_weights + tokens.computed * level.backward_bytes_beside_copies;
    block.working = std::max(block.working, with_copies);
  }
}

// Rows are kept by all blocks, and by one more while it computes its backward.
void plan_expert_rows(const std::vector<BlockMemory>& blocks, const Tokens& tokens, MemoryPlan& plan) {
  int64_t computed = 0, most_computed = 0;
  const auto at_most = [](int64_t bytes, const BlockMemory& block) {
    return static_cast<int64_t>(static_cast<double>(bytes) * block.largest_load);
  };
  for (const BlockMemory& block : blocks) {
    const int64_t kept = tokens.kept * block.level.kept_row_bytes;
    const int64_t here = tokens.computed * block.level.backward_row_bytes;
    plan.expert_rows += kept;
    plan.most_rows += at_most(kept, block);
    computed = std::max(computed, here);
    most_computed = std::max(most_computed, at_most(here, block));
  }
  plan.expert_rows += computed;
  plan.most_rows += most_computed;
}

// What is there at a moment of the backward.
struct Moment {
  int64_t gradients = 0;
  int64_t activations = 0;
  int64_t working = 0;
  int64_t total() const { return gradients + activations + working; }
};

// Those of earlier blocks are there while a block computes; those of all, from earlier micro-batches or in buckets; or
// none.
enum class Gradients { kGrow, kStay, kLeave };

// From the head down, blocks leave their activations and get gradients; then comes the update. The moment when most is
// needed.
Moment largest_moment(models::Model& model, const std::vector<BlockMemory>& blocks, const Tokens& tokens,
                      int64_t gradient_element, const MemoryPlan& plan, Gradients gradients, int64_t of_head,
                      int64_t of_update, int64_t of_frozen) {
  int64_t gradients_of_root = 0, gradients_of_embedding = 0;
  Moment now{.activations = plan.activations, .working = of_head};
  for (const nn::Unit* unit : model.units()) {
    const int64_t elements = count_stored(unit->parameters);
    if (unit->role == nn::UnitRole::kEmbedding) gradients_of_embedding += elements * gradient_element;
    if (unit->role == nn::UnitRole::kRoot) gradients_of_root += elements * gradient_element;
    if (unit->role == nn::UnitRole::kHead) now.gradients += elements * gradient_element;
  }
  now.gradients += gradients_of_root;
  Moment largest;
  const auto look = [&] {
    if (gradients == Gradients::kStay) now.gradients = plan.gradients;
    if (now.total() > largest.total()) largest = now;
  };
  look();
  if (gradients == Gradients::kLeave) now.gradients = gradients_of_root;
  for (const auto& block : std::views::reverse(blocks)) {
    now.gradients += block.parameters * gradient_element;
    now.working = block.working;
    look();
    if (gradients == Gradients::kLeave) now.gradients = gradients_of_root;
    now.activations -= tokens.kept * block.level.kept_bytes;
  }
  now = {.gradients = gradients == Gradients::kStay ? plan.gradients : 0, .working = of_frozen};
  look();
  now = {.gradients = gradients == Gradients::kLeave ? gradients_of_root + gradients_of_embedding : plan.gradients,
         .working = of_update};
  look();
  return largest;
}

// All of the plan is counted in 64 bits. What cannot be is no plan for any device.
void check_countable(const models::Model& model, const JobConfig& config, const SampleSizes& samples,
                     int64_t micro_batch, const std::vector<BlockMemory>& blocks) {
  constexpr double kMost = 1e18;
  double per_token = static_cast<double>(model.costs().head_bytes(1, bytes(parse_dtype(config.training.dtype))));
  for (const BlockMemory& block : blocks) {
    per_token += static_cast<double>(block.level.kept_bytes + block.level.backward_bytes);
  }
  const double tokens = static_cast<double>(std::max(samples.live, micro_batch)) * static_cast<double>(samples.tokens);
  if (tokens * per_token < kMost) return;
  throw UsageError(
      fmt::format("training.local_batch_size = {} with {} tokens in a sample needs more memory than any device has: "
                  "about {:.2g} GiB for activations. Make them smaller.",
                  config.training.local_batch_size, samples.tokens, tokens * per_token / kGiB));
}

}  // namespace

MemoryPlan plan_memory(models::Model& model, const optim::Optimizer& optimizer, const JobConfig& config,
                       const parallel::ParallelDims& dims, const std::vector<size_t>& levels,
                       const SampleSizes& samples, const FrozenMemory& frozen) {
  const Dtype dtype = parse_dtype(config.training.dtype);
  const int64_t element = bytes(dtype);
  const int64_t micro_batch =
      dims.pp > 1 ? config.parallelism.pipeline_parallel_microbatch_size : config.training.local_batch_size;
  std::vector<BlockMemory> blocks = blocks_here(model, levels);
  check_countable(model, config, samples, micro_batch, blocks);
  const int64_t seq_len = samples.tokens / dims.cp;
  MemoryPlan plan;
  for (const Parameter* parameter : model.parameters()) {
    plan.parameters += volume(parameter->shard.shape) * element;
    plan.optimizer += optimizer.state_bytes(*parameter, dtype);
  }
  plan.gradients = plan.parameters;
  plan.frozen = frozen.weights;
  plan.on_host = frozen.on_host;
  const bool is_sharded = models::is_fully_sharded(config.parallelism, dims);
  if (is_sharded) {
    plan_sharding(model, config.parallelism, dims, dtype, plan);
    if (config.training.enable_cpu_offload) plan.parameters = plan.gradients = plan.optimizer = 0;
  } else {
    for (const Parameter* parameter : model.parameters()) {
      plan.computed_copy += volume(parameter->part.shape) * copy_bytes(*parameter, dtype, model.compute_dtype);
    }
  }
  plan.communication += exchange_bytes(model, config, dims, micro_batch, samples.tokens);
  const Tokens tokens{samples.live * seq_len / dims.tp, micro_batch * seq_len / dims.tp};
  for (const BlockMemory& block : blocks) plan.activations += tokens.kept * block.level.kept_bytes;
  plan_expert_rows(blocks, tokens, plan);
  const bool one_micro_batch =
      dims.pp == 1 && config.training.global_batch_size <= config.training.local_batch_size * dims.batch();
  // Those of replicas have their places in buckets from the start.
  const bool in_buckets = dims.dp_replicate > 1 && !is_sharded;
  const auto gradients = in_buckets                                ? Gradients::kStay
                         : config.optimizer.early_step_in_backward ? Gradients::kLeave
                         : one_micro_batch                         ? Gradients::kGrow
                                                                   : Gradients::kStay;
  plan_working(blocks, tokens,
               gradients == Gradients::kStay && (!is_sharded || keeps_whole_grads(config.parallelism, dims)));
  const Moment largest =
      largest_moment(model, blocks, tokens, plan.gradients == 0 ? 0 : element, plan, gradients,
                     model.costs().head_bytes(tokens.computed, element), optimizer.working_bytes(), frozen.working);
  plan.working = largest.working;
  plan.shared = plan.gradients + plan.activations - largest.gradients - largest.activations;
  return plan;
}

std::string describe(const MemoryPlan& plan) {
  std::string text = fmt::format(
      "parameters {:.2f} GiB, copy in the compute dtype {:.2f} GiB, gradients {:.2f} GiB, optimizer {:.2f} GiB, "
      "communication {:.2f} GiB, activations {:.2f} GiB, working memory {:.2f} GiB, less {:.2f} GiB that gradients "
      "take over "
      "from activations, together {:.2f} GiB",
      plan.parameters / kGiB, plan.computed_copy / kGiB, plan.gradients / kGiB, plan.optimizer / kGiB,
      plan.communication / kGiB, plan.activations / kGiB, plan.working / kGiB, plan.shared / kGiB, plan.total() / kGiB);
  if (plan.frozen > 0)
    text += fmt::format("; networks that are not trained take {:.2f} GiB of that", plan.frozen / kGiB);
  if (plan.on_host > 0) text += fmt::format("; others take {:.2f} GiB of host memory", plan.on_host / kGiB);
  if (plan.most_rows > plan.expert_rows) {
    text += fmt::format(
        "; rows of experts take {:.2f} GiB of that, and {:.2f} GiB ({:.2f} GiB together) if all tokens choose the "
        "experts of one rank",
        plan.expert_rows / kGiB, plan.most_rows / kGiB, plan.worst_total() / kGiB);
  }
  return text;
}

void check_fits(const MemoryPlan& plan, int64_t device_bytes) {
  if (plan.total() <= device_bytes) return;
  throw UsageError(
      fmt::format("the run needs about {:.1f} GiB, but the device has {:.1f} GiB ({}). Use activation_checkpoint.mode "
                  "= \"full\", a smaller "
                  "training.local_batch_size or training.seq_len, training.dtype = \"bfloat16\", or more ranks{}.",
                  plan.total() / kGiB, device_bytes / kGiB, describe(plan),
                  plan.frozen > 0 ? "; or leave networks that are not trained out of it with encoder.sharded, "
                                    "encoder.on_cpu or encoder.offline"
                                  : ""));
}

}  // namespace titanium::train
