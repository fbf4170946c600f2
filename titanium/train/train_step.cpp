#include "titanium/train/train_step.h"

#include <ATen/ops/zeros.h>

#include "titanium/base/log.h"
#include "titanium/optim/grad_norm.h"
#include "titanium/train/token_batch.h"

namespace titanium::train {
namespace {

// The micro batches of a step, or none if the data ends before they are complete.
std::vector<data::Batch> fetch(TrainState& run, double& waited_seconds) {
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < run.accumulation_steps; ++i) {
    std::optional<data::Batch> batch = run.loader->next();
    waited_seconds += run.loader->last_wait_seconds();
    if (!batch) return {};
    batches.push_back(*std::move(batch));
  }
  return batches;
}

int64_t count_valid_tokens(const std::vector<data::Batch>& batches) {
  int64_t count = 0;
  for (const data::Batch& batch : batches) count += train::count_valid_tokens(batch);
  return count;
}

// Sums of gradients over all micro batches, each token weighted by 1 / valid_tokens; returns the loss.
Tensor forward_backward(TrainState& run, const std::vector<data::Batch>& batches, int64_t valid_tokens) {
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(1, valid_tokens));
  Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(run.device));
  for (const data::Batch& batch : batches) {
    const LabelledBatch labelled = to_device(batch, *run.model, run.tokenizer, run.device);
    const Tensor loss = run.model->loss(labelled.inputs, labelled.labels_BS, scale);
    loss.backward();
    total.add_(loss.detach());
  }
  return total;
}

}  // namespace

std::optional<StepReport> train_step(TrainState& run) {
  StepReport report;
  const auto batches = fetch(run, report.data_loading_seconds);
  if (batches.empty()) {
    log_warning("Ran out of data; last step was canceled.");
    return std::nullopt;
  }
  run.optimizer->zero_grad();
  report.loss = forward_backward(run, batches, count_valid_tokens(batches));
  report.grad_norm = optim::total_norm(run.parameters);
  optim::clip_grads(run.parameters, run.config.training.max_norm, report.grad_norm);
  report.lr = run.config.optimizer.lr * optim::lr_factor(run.schedule, run.step);
  run.optimizer->step(report.lr, /*skip_unless_finite=*/report.grad_norm);
  ++run.step;
  for (const data::Batch& batch : batches) report.tokens += batch.batch * batch.seq_len;
  run.tokens_seen += report.tokens;
  return report;
}

}  // namespace titanium::train
