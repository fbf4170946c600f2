#include "titanium/train/train_step.h"

#include <ATen/ops/tensor.h>

#include "titanium/base/log.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/parallel/grad_reduction.h"
#include "titanium/remote/transport/lost_time.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::train {
namespace {

// The batches of a step, or none if the data ends before they are complete.
std::vector<BatchPtr> fetch(TrainState& run, double& waited_seconds) {
  const TraceScope scope("data wait");
  const remote::OneWait wait;  // the other ranks wait for all of it
  std::vector<BatchPtr> batches;
  for (int64_t i = 0; i < run.accumulation_steps; ++i) {
    BatchPtr batch = run.data->next();
    waited_seconds += run.data->last_wait_seconds();
    if (batch == nullptr) return {};
    batches.push_back(std::move(batch));
  }
  return batches;
}

// What all ranks have to know before they compute. On the host, so that the device need not be waited for.
// Returns whether all ranks have batches for this step.
bool agree(const parallel::Mesh& mesh, bool has_batches, StepReport& report) {
  const TraceScope scope("agree");
  // Context-parallel ranks count what they have of a sequence, those with other parts of the model the same tokens.
  const bool counts = mesh.rank("tp") == 0 && mesh.rank("pp") == 0;
  std::vector<int64_t> own = {counts ? report.weight : 0, int64_t{report.requests.stop}, int64_t{report.requests.save},
                              int64_t{!has_batches}};
  for (const SourceTokens& source : report.tokens_by_source)
    own.push_back(counts && mesh.rank("cp") == 0 ? source.tokens : 0);
  const Tensor sums = at::tensor(own, at::kLong);
  mesh.reduce("world", sums, comm::Reduce::kSum);
  const auto* values = sums.const_data_ptr<int64_t>();
  report.total_weight = values[0];
  report.requests = {.stop = values[1] > 0, .save = values[2] > 0};
  for (size_t k = 0; k < report.tokens_by_source.size(); ++k) report.tokens_by_source[k].tokens = values[4 + k];
  return values[3] == 0;
}

// Gradients become sums over all batches and ranks, divided by the weight of all of them. Returns this rank's loss.
Tensor forward_backward(TrainState& run, const std::vector<BatchPtr>& batches, int64_t total_weight) {
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(1, total_weight));
  const Tensor loss = run.executor->forward_backward(batches, scale);
  parallel::sum_replicated_grads(run.parameters, *run.mesh);
  return loss;
}

Tensor global_grad_norm(const TrainState& run) {
  const TraceScope scope("gradient norm");
  std::vector<Parameter*> counted = run.parameters;
  std::erase(counted, run.executor->second_copy());
  return parallel::global_grad_norm(counted, *run.mesh);
}

}  // namespace

std::optional<StepReport> train_step(TrainState& run, const Requests& requests) {
  StepReport report;
  comm::flight_recorder().set_step(run.step + 1);
  const auto batches = fetch(run, report.data_loading_seconds);
  for (const BatchPtr& batch : batches) {
    report.tokens += batch->tokens();
    report.weight += batch->weight();
  }
  report.requests = requests;
  report.tokens_by_source = run.data->tokens_by_source();
  if (!agree(*run.mesh, !batches.empty(), report)) {
    log_warning("Ran out of data; last step was canceled.");
    return std::nullopt;
  }
  run.optimizer->zero_grad();
  report.lr = run.config.optimizer.lr * optim::lr_factor(run.schedule, run.schedule_step);
  if (run.early_step) {
    run.hold_updates();
    run.early_step->begin(report.lr);
  }
  report.loss = forward_backward(run, batches, report.total_weight);
  run.hold_updates();
  run.model->before_update(*run.mesh);
  if (run.early_step) {
    report.grad_norm = run.early_step->finish();
  } else {
    report.grad_norm = global_grad_norm(run);
    const TraceScope scope("optimizer");
    const double max_norm = run.config.training.max_norm;
    run.optimizer->step(report.lr, report.grad_norm, max_norm > 0 ? max_norm : std::numeric_limits<double>::infinity());
  }
  run.parallelism.data_parallel->weights_changed();
  ++run.step;
  ++run.schedule_step;
  run.tokens_seen += report.tokens * run.mesh->size("batch");
  return report;
}

LossOfAllRanks loss_of_all_ranks(const TrainState& run, const StepReport& report) {
  const auto own_weight = static_cast<double>(std::max<int64_t>(1, report.weight));
  const Tensor mean = report.loss.clone();
  const Tensor max = report.loss * (static_cast<double>(report.total_weight) / own_weight);
  for (const char* axis : {"loss", "pp"}) {  // ranks without the last stage have a loss of zero
    run.mesh->reduce(axis, mean, comm::Reduce::kSum);
    run.mesh->reduce(axis, max, comm::Reduce::kMax);
  }
  return {mean, max};
}

}  // namespace titanium::train
