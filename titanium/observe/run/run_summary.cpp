#include "titanium/observe/run/run_summary.h"

#include <algorithm>
#include <cmath>

namespace titanium::observe {
namespace {

constexpr size_t kRecent = 20;  // records whose rate counts

double number_of(const nlohmann::ordered_json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

// Seconds per step over the last records of one process: `time_s` starts again with each.
std::optional<double> recent_step_seconds(const Columns& columns) {
  const std::vector<double>* times = columns.find("time_s");
  if (times == nullptr || times->size() < 2) return columns.last("step_s");
  const size_t last = times->size() - 1;
  size_t first = last;
  while (first > 0 && last - first < kRecent && (*times)[first - 1] < (*times)[first]) --first;
  if (first == last) return columns.last("step_s");
  return ((*times)[last] - (*times)[first]) / (columns.steps[last] - columns.steps[first]);
}

// The first step of each start and of all that came after it. So the last start that went on before a step, which has
// trained it for good, is the number of these that are smaller.
std::vector<double> first_steps(const RunData& run) {
  std::vector<double> firsts;
  for (const RunEvent& restart : run.restarts) firsts.push_back(restart.step);
  for (size_t i = firsts.size(); i-- > 1;) firsts[i - 1] = std::min(firsts[i - 1], firsts[i]);
  return firsts;
}

// `time_s` begins again with each process: the sum over all, as far as their steps stay.
double productive_seconds(const RunData& run, const std::vector<double>& times) {
  const std::vector<double> firsts = first_steps(run);
  double sum = 0, last = 0;
  int64_t start = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    if (std::isnan(times[i])) continue;
    const int64_t own = std::ranges::lower_bound(firsts, run.columns.steps[i]) - firsts.begin();
    if (own != start || times[i] < last) sum += last;
    start = own;
    last = times[i];
  }
  return sum + last;
}

RunState state_of(const RunData& run, const RunSummary& summary, double now) {
  const double started = number_of(run.start, "unix_s", 0);
  if (run.end == "completed") return RunState::kCompleted;
  if (run.end == "stopped") return RunState::kStopped;
  if (run.error && run.error->unix_s >= started) return RunState::kFailed;
  const double log_freq = number_of(run.start, "log_freq", 10);
  const double usual = summary.step_seconds.value_or(6) * log_freq;
  const double last = std::max(summary.last_logged, started);
  if (last > 0 && now - last > std::max(120.0, 10 * usual)) return RunState::kSilent;
  return run.columns.steps.empty() ? RunState::kStarting : RunState::kRunning;
}

}  // namespace

RunSummary summarize(const RunData& run, double now) {
  RunSummary summary;
  const Columns& columns = run.columns;
  if (!columns.steps.empty()) summary.step = columns.steps.back();
  summary.total_steps = number_of(run.start, "total_steps", 0);
  summary.last_logged = columns.last("unix_s").value_or(0);
  summary.tokens = columns.last("tokens");
  summary.loss = columns.last("loss");
  summary.tps = columns.last("tps");
  summary.mfu = columns.last("mfu");
  summary.memory_gib = columns.last("memory_gib");
  for (const auto& [set, losses] : run.validation) {
    if (!losses.empty()) summary.validation.emplace_back(set, losses.rbegin()->second);
  }
  summary.step_seconds = recent_step_seconds(columns);
  summary.restarts = static_cast<int64_t>(run.restarts.size());
  summary.state = state_of(run, summary, now);
  const bool goes_on = summary.state == RunState::kRunning || summary.state == RunState::kStarting;
  if (goes_on && summary.step_seconds && summary.total_steps > summary.step) {
    summary.seconds_left = *summary.step_seconds * (summary.total_steps - summary.step);
  }
  const std::vector<double>* times = columns.find("time_s");
  if (run.first_start > 0) {
    summary.elapsed = std::max(0.0, (goes_on ? now : std::max(summary.last_logged, run.first_start)) - run.first_start);
  } else if (times != nullptr) {
    summary.elapsed = productive_seconds(run, *times);
  }
  if (run.first_start > 0 && times != nullptr && summary.elapsed > 0) {
    summary.goodput = std::min(1.0, productive_seconds(run, *times) / summary.elapsed);
  }
  return summary;
}

std::string to_string(RunState state) {
  switch (state) {
    case RunState::kStarting:
      return "starting";
    case RunState::kRunning:
      return "running";
    case RunState::kSilent:
      return "no news";
    case RunState::kCompleted:
      return "completed";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFailed:
      return "failed";
  }
  return "";
}

}  // namespace titanium::observe
