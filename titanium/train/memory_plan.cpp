#include "titanium/train/memory_plan.h"

#include "titanium/base/error.h"

namespace titanium::train {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

}  // namespace

MemoryPlan plan_memory(const models::LanguageModel& model, const JobConfig& config,
                       const std::vector<nn::BlockSaves>& saves) {
  const auto element = static_cast<int64_t>(c10::elementSize(parse_dtype(config.training.dtype)));
  const auto compute_element = static_cast<int64_t>(c10::elementSize(model.compute_dtype));
  const int64_t count = model.size(config.training.seq_len).parameters;
  const int64_t tokens = config.training.local_batch_size * config.training.seq_len;
  MemoryPlan plan;
  plan.parameters = count * element;
  plan.computed_copy = model.compute_dtype == parse_dtype(config.training.dtype) ? 0 : count * compute_element;
  plan.gradients = count * element;
  plan.optimizer = 2 * count * element;
  for (const nn::BlockSaves block : saves) plan.activations += tokens * model.saved_bytes_per_token(block);
  // A block's backward holds everything that the block saves, and gradients of about the same size.
  plan.working = 2 * tokens * model.saved_bytes_per_token(nn::BlockSaves::kEverything);
  return plan;
}

std::string describe(const MemoryPlan& plan) {
  return fmt::format(
      "parameters {:.2f} GiB, copy in the compute dtype {:.2f} GiB, gradients {:.2f} GiB, optimizer {:.2f} GiB, "
      "activations {:.2f} GiB, working memory {:.2f} GiB, together {:.2f} GiB",
      plan.parameters / kGiB, plan.computed_copy / kGiB, plan.gradients / kGiB, plan.optimizer / kGiB,
      plan.activations / kGiB, plan.working / kGiB, plan.total() / kGiB);
}

void check_fits(const MemoryPlan& plan, int64_t device_bytes) {
  if (plan.total() <= device_bytes) return;
  throw UsageError(
      fmt::format("the run needs about {:.1f} GiB, but the device has {:.1f} GiB ({}). Use activation_checkpoint.mode "
                  "= \"full\", a smaller "
                  "training.local_batch_size or training.seq_len, or training.dtype = \"bfloat16\".",
                  plan.total() / kGiB, device_bytes / kGiB, describe(plan)));
}

}  // namespace titanium::train
