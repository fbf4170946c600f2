#include "titanium/train/report/run_observer.h"

#include <chrono>

#include "titanium/base/log.h"

namespace titanium::train {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

RunObserver::RunObserver(const config::LoadedConfig& loaded, const observe::RunStart& start, bool is_metrics_rank) {
  const config::Metrics& options = loaded.config.metrics;
  if (!is_metrics_rank) return;
  if (options.enable_jsonl) log_ = std::make_unique<observe::RunLog>(loaded.config.job.dump_folder, loaded, start);
  if (options.port == 0) return;
  status_ = std::make_unique<observe::RunStatus>(loaded.config.training.steps, start.restarts,
                                                 static_cast<double>(options.stall_seconds), steady_seconds);
  server_ = std::make_unique<observe::HttpServer>(
      options.address, static_cast<int>(options.port),
      [this](const observe::HttpRequest& request) { return status_->answer(request); }, "metrics.port");
  log_info("Metrics are served at {}/metrics", server_->url());
}

void RunObserver::step_finished(int64_t step) {
  if (status_) status_->step_finished(step);
}

void RunObserver::logged(const observe::LoggedStep& values) {
  if (status_) status_->logged(values);
}

void RunObserver::validated(int64_t step, double loss, double tps, const std::string& set) {
  if (status_) status_->validated(loss, set);
  if (log_) log_->validation(step, loss, tps, set);
}

void RunObserver::images_drawn(int64_t step, std::span<const observe::ShownImage> images) {
  if (log_) log_->images(step, images);
}

void RunObserver::checkpoint_saved(int64_t step, double seconds) {
  if (status_) status_->checkpoint_saved(step);
  if (log_) log_->checkpoint(step, seconds);
}

void RunObserver::ended(int64_t step, observe::RunEnd how) {
  if (log_) log_->end(step, how);
}

}  // namespace titanium::train
