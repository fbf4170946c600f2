// What can be asked of a run while it runs, from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "titanium/observe/http_server.h"

namespace titanium::observe {

// The values of the last logged step.
struct LoggedStep {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tps = 0;
  std::optional<double> mfu = std::nullopt;  // percent
  double memory_gib = 0;                     // reserved
  double data_wait_percent = 0;
  int64_t tokens = 0;  // seen by all ranks
};

class RunStatus {
 public:
  using Clock = std::function<double()>;  // seconds, from any origin

  // `restarts`: how often a launcher has started the ranks again. After `stall_seconds` without a finished step the run
  // is not healthy.
  RunStatus(int64_t total_steps, int64_t restarts, double stall_seconds, Clock clock);

  void step_finished(int64_t step);
  void logged(const LoggedStep& values);
  // `set` is empty where there is one set alone.
  void validated(double loss, const std::string& set = "");
  void checkpoint_saved(int64_t step);

  // As OpenMetrics 1.0 has it. What is not known yet is left out.
  std::string open_metrics() const;
  // Answers /metrics, and /health with status 200, or 503 when the run is stalled.
  HttpResponse answer(const HttpRequest& request) const;

 private:
  std::string health(bool healthy, double silent) const;

  const int64_t total_steps_;
  const int64_t restarts_;
  const double stall_seconds_;
  const Clock clock_;
  mutable std::mutex mutex_;
  int64_t step_ = 0;
  double last_step_at_;  // of the start until a step has ended
  std::optional<LoggedStep> logged_;
  std::map<std::string, double> validation_losses_;  // by set
  std::optional<int64_t> checkpoint_step_;
  double checkpoint_at_ = 0;
};

}  // namespace titanium::observe
