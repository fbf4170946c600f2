#include "titanium/train/pipeline.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/stage_split.h"

namespace titanium::train {
namespace {

schedule::Table build_table(const config::Parallelism& options, const schedule::Schedule& schedule, int ranks,
                            int stages, int micro_batches) {
  if (schedule.build != nullptr) {
    return schedule::build_table(schedule,
                                 {.ranks = ranks, .stages_per_rank = stages / ranks, .micro_batches = micro_batches});
  }
  const std::string path = options.pipeline_parallel_schedule_csv.value_or("");
  if (path.empty()) {
    throw UsageError(
        fmt::format("parallelism.pipeline_parallel_schedule = \"{}\" takes its table from a file. Name it with "
                    "parallelism.pipeline_parallel_schedule_csv.",
                    schedule.name));
  }
  schedule::Table table = schedule::read_csv(path);
  schedule::check_fits(table, schedule, ranks, micro_batches, path);
  if (table.stages() == stages) return table;
  throw UsageError(
      fmt::format("{} is a schedule for {} stages, but the model is cut into {}.", path, table.stages(), stages));
}

}  // namespace

std::vector<models::ModelStage> PipelinePlan::stages_of(int64_t pipeline_rank) const {
  std::vector<models::ModelStage> own;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (table.owner[stage] == pipeline_rank) own.push_back(stages[stage]);
  }
  return own;
}

int64_t PipelinePlan::live_samples(int64_t pipeline_rank) const {
  const int64_t live = schedule::peak_live_activations(table)[static_cast<size_t>(pipeline_rank)];
  const auto here = static_cast<int64_t>(stages_of(pipeline_rank).size());
  return micro_batch_size * (live + here - 1) / here;
}

std::optional<PipelinePlan> plan_pipeline(const JobConfig& config, const parallel::ParallelDims& dims,
                                          const schedule::ModelChildren& children) {
  if (dims.pp == 1) return std::nullopt;
  const config::Parallelism& options = config.parallelism;
  const schedule::Schedule& schedule = schedule::find_schedule(options.pipeline_parallel_schedule);
  const int64_t micro_batches =
      schedule::count_micro_batches(config.training.local_batch_size, options.pipeline_parallel_microbatch_size);
  PipelinePlan plan{.micro_batch_size = options.pipeline_parallel_microbatch_size};
  const schedule::StageModules modules =
      schedule::split_model(schedule, {.ranks = dims.pp,
                                       .children = children,
                                       .input_weight = options.pipeline_parallel_first_stage_less_layers,
                                       .output_weight = options.pipeline_parallel_last_stage_less_layers,
                                       .layers_per_stage = options.pipeline_parallel_layers_per_stage,
                                       .modules = options.module_fqns_per_model_part});
  for (const auto& names : modules) plan.stages.push_back(models::stage_of(children, names));
  plan.table = build_table(options, schedule, static_cast<int>(dims.pp), static_cast<int>(modules.size()),
                           static_cast<int>(micro_batches));
  if (const auto warning = schedule::warn_of_few_micro_batches(micro_batches, static_cast<int64_t>(modules.size()))) {
    log_warning("{}", *warning);
  }
  return plan;
}

Pipeline::Pipeline(PipelinePlan plan, models::Model& model, parallel::DataParallel& data_parallel,
                   const parallel::Mesh& mesh, Device device, parallel::RunPair run_pair)
    : plan_(std::move(plan)),
      model_(model),
      data_parallel_(data_parallel),
      mesh_(mesh),
      device_(device),
      training_(plan_.table, mesh.group("pp"), model.parameters(), std::move(run_pair)) {}

const parallel::PipelineRunner& Pipeline::runner_for(int64_t micro_batches) {
  if (c10::GradMode::is_enabled()) return training_;
  const auto found = validation_.find(micro_batches);
  if (found != validation_.end()) return found->second;
  const schedule::Table table = schedule::forwards_only(plan_.table.owner, mesh_.size("pp"), micro_batches);
  return validation_.try_emplace(micro_batches, table, mesh_.group("pp"), model_.parameters()).first->second;
}

const Parameter* Pipeline::second_copy() const {
  const int first = plan_.table.owner.front(), last = plan_.table.owner.back();
  return first != last && mesh_.rank("pp") == last ? model_.shared_by_ends() : nullptr;
}

void Pipeline::sum_shared_grads() {
  const int first = plan_.table.owner.front(), last = plan_.table.owner.back();
  const Parameter* shared = model_.shared_by_ends();
  if (shared == nullptr || first == last) return;
  const comm::GroupPtr& group = mesh_.group("pp");
  const int other = group->rank() == first ? last : first;
  const Tensor theirs = at::empty_like(shared->grad);
  const comm::Work receiving = group->receive(theirs, other);
  const comm::Work sending = group->send(shared->grad.contiguous(), other);
  receiving->wait();
  sending->wait();
  Tensor(shared->grad).add_(theirs);
}

// Gradients are reduced once, when all micro-batches of all stages are done.
Tensor Pipeline::forward_backward(const std::vector<BatchPtr>& batches, double scale) {
  Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
  data_parallel_.begin_micro_batch(/*last=*/false);
  for (const BatchPtr& batch : batches) total.add_(run(*batch, scale));
  data_parallel_.begin_micro_batch(/*last=*/true);
  data_parallel_.end_micro_batch();
  sum_shared_grads();
  return total;
}

Tensor Pipeline::run(const Batch& batch, double scale) {
  const int64_t samples = batch.samples();
  const int64_t size = samples % plan_.micro_batch_size == 0 ? plan_.micro_batch_size : samples;
  std::vector<std::unique_ptr<MicroBatch>> micro_batches;
  for (int64_t first = 0; first < samples; first += size) micro_batches.push_back(batch.to_device(first, size));
  const auto forward = [&](int stage, int i, const ops::Tensors& inputs) {
    return micro_batches[static_cast<size_t>(i)]->run_stage(plan_.stages[static_cast<size_t>(stage)], inputs, scale);
  };
  const parallel::PipelineRunner& runner = runner_for(static_cast<int64_t>(micro_batches.size()));
  const Tensor loss = runner.run(forward, micro_batches.front()->hidden_states());
  return loss.defined() ? loss : at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
}

}  // namespace titanium::train
