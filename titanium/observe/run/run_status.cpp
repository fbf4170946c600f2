#include "titanium/observe/run/run_status.h"

#include <fmt/format.h>

#include <cmath>

namespace titanium::observe {
namespace {

constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{:.9g}", value);
}

// One family with one sample. A name that ends with its unit has `unit` as well.
void add(std::string& text, const char* name, const char* unit, const char* meaning, double value) {
  text += fmt::format("# TYPE {0} gauge\n", name);
  if (*unit != '\0') text += fmt::format("# UNIT {} {}\n", name, unit);
  text += fmt::format("# HELP {0} {1}\n{0} {2}\n", name, meaning, number(value));
}

std::string escaped(const std::string& label) {
  std::string text;
  for (const char c : label) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

// One family with a sample for each set.
void add_validation(std::string& text, const std::map<std::string, double>& losses) {
  if (losses.empty()) return;
  text += "# TYPE titanium_validation_loss gauge\n# HELP titanium_validation_loss Loss of the last validation.\n";
  for (const auto& [set, loss] : losses) {
    const std::string label = set.empty() ? "" : fmt::format(R"({{set="{}"}})", escaped(set));
    text += fmt::format("titanium_validation_loss{} {}\n", label, number(loss));
  }
}

void add_counter(std::string& text, const char* name, const char* meaning, int64_t value) {
  text += fmt::format("# TYPE {0} counter\n# HELP {0} {1}\n{0}_total {2}\n", name, meaning, value);
}

}  // namespace

RunStatus::RunStatus(int64_t total_steps, int64_t restarts, double stall_seconds, Clock clock)
    : total_steps_(total_steps),
      restarts_(restarts),
      stall_seconds_(stall_seconds),
      clock_(std::move(clock)),
      last_step_at_(clock_()) {}

void RunStatus::step_finished(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  last_step_at_ = clock_();
}

void RunStatus::logged(const LoggedStep& values) {
  const std::lock_guard lock(mutex_);
  logged_ = values;
}

void RunStatus::validated(double loss, const std::string& set) {
  const std::lock_guard lock(mutex_);
  validation_losses_[set] = loss;
}

void RunStatus::checkpoint_saved(int64_t step) {
  const std::lock_guard lock(mutex_);
  checkpoint_step_ = step;
  checkpoint_at_ = clock_();
}

std::string RunStatus::open_metrics() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  add(text, "titanium_step", "", "Last finished training step.", static_cast<double>(step_));
  add(text, "titanium_steps_planned", "", "training.steps.", static_cast<double>(total_steps_));
  add(text, "titanium_last_step_age_seconds", "seconds", "Time since a step was finished, or since the start.",
      clock_() - last_step_at_);
  add_counter(text, "titanium_restarts", "How often the launcher has started the ranks again.", restarts_);
  if (logged_) {
    add(text, "titanium_logged_step", "", "Step of the values below.", static_cast<double>(logged_->step));
    add(text, "titanium_loss", "", "Mean loss over the tokens of all ranks.", logged_->loss);
    add(text, "titanium_grad_norm", "", "Norm of the gradients before clipping.", logged_->grad_norm);
    add(text, "titanium_learning_rate", "", "Learning rate.", logged_->lr);
    add(text, "titanium_tokens_per_second", "", "Tokens per second and device.", logged_->tps);
    if (logged_->mfu) add(text, "titanium_mfu_percent", "percent", "Model FLOPS utilisation.", *logged_->mfu);
    add(text, "titanium_memory_gibibytes", "gibibytes", "Peak of the memory taken from the device.",
        logged_->memory_gib);
    add(text, "titanium_data_wait_percent", "percent", "Share of the time spent waiting for batches.",
        logged_->data_wait_percent);
    add_counter(text, "titanium_tokens", "Tokens seen by all ranks.", logged_->tokens);
  }
  add_validation(text, validation_losses_);
  if (checkpoint_step_) {
    add(text, "titanium_checkpoint_step", "", "Step of the last checkpoint that this process has saved.",
        static_cast<double>(*checkpoint_step_));
    add(text, "titanium_checkpoint_age_seconds", "seconds", "Time since it was saved.", clock_() - checkpoint_at_);
  }
  return text + "# EOF\n";
}

HttpResponse RunStatus::answer(const HttpRequest& request) const {
  if (request.path == "/metrics") return {.type = kOpenMetrics, .body = open_metrics()};
  if (request.path != "/health") return {.status = 404, .body = "Ask for /metrics or /health.\n"};
  const std::lock_guard lock(mutex_);
  const double silent = clock_() - last_step_at_;
  const bool healthy = silent < stall_seconds_;
  return {.status = healthy ? 200 : 503, .type = "application/json", .body = health(healthy, silent)};
}

std::string RunStatus::health(bool healthy, double silent) const {
  return fmt::format(R"({{"status": "{}", "step": {}, "seconds_since_last_step": {:.1f}}})", healthy ? "ok" : "stalled",
                     step_, silent) +
         "\n";
}

}  // namespace titanium::observe
