#include "titanium/train/report/step_logger.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "titanium/base/error.h"

namespace titanium::train {

StepLogger::StepLogger(const TrainState& run, Metrics& metrics)
    : run_(run),
      metrics_(metrics),
      host_(at::empty({3}, at::TensorOptions(at::kDouble).pinned_memory(run.device.is_cuda()))),
      read_(run.device, /*timed=*/true),
      last_read_(run.device, /*timed=*/true) {
  const auto is_expert = [](const Parameter* parameter) { return parameter->view == RankView::kSparse; };
  if (std::ranges::any_of(run.model->whole()->parameters(), is_expert)) {
    host_experts_ = at::empty({run.model->block_count(), 4}, host_.options());
  }
  metrics_.start();
  last_finished_ = metrics_.now();
  last_read_.record();
}

void StepLogger::add(const StepReport& report) {
  flush();
  metrics_.count_tokens(report.tokens);
  metrics_.count_data_loading(report.data_loading_seconds);
  if (!metrics_.should_log(run_.step)) return;
  begin_reading(report);
  if (run_.device.is_cpu()) flush();
}

void StepLogger::begin_reading(const StepReport& report) {
  pending_ = StepResults{
      .step = run_.step, .lr = report.lr, .tokens_seen = run_.tokens_seen, .tokens_by_source = report.tokens_by_source};
  counts_ = metrics_.end_interval();
  const auto [loss, max_loss] = loss_of_all_ranks(run_, report);
  host_[0].copy_(loss, /*non_blocking=*/true);
  host_[1].copy_(max_loss, /*non_blocking=*/true);
  host_[2].copy_(report.grad_norm, /*non_blocking=*/true);
  if (host_experts_.defined()) {
    host_experts_.copy_(measure_expert_balance(*run_.model, *run_.mesh, run_.device), /*non_blocking=*/true);
  }
  read_.record();
}

void StepLogger::flush() {
  if (!pending_) return;
  read_.synchronize();
  StepResults results = *std::exchange(pending_, std::nullopt);
  const auto* values = host_.const_data_ptr<double>();
  results.loss = values[0];
  results.max_loss = values[1];
  results.grad_norm = values[2];
  if (host_experts_.defined()) results.experts = read_expert_balance(host_experts_);
  results.finished = last_finished_ + read_.seconds_since(last_read_);
  last_finished_ = results.finished;
  std::swap(read_, last_read_);
  metrics_.log(results, counts_);
  TI_CHECK(
      std::isfinite(results.loss) && std::isfinite(results.grad_norm),
      "the loss or the gradient norm is not finite at step {} (loss {}, grad_norm {}). Updates with such gradients "
      "were skipped. Lower optimizer.lr, lengthen lr_scheduler.warmup_steps or check the data.",
      results.step, results.loss, results.grad_norm);
}

}  // namespace titanium::train
