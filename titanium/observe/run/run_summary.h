// How a run is doing, in a few numbers.
#pragma once

#include <optional>
#include <string>

#include "titanium/observe/run/run_folder.h"

namespace titanium::observe {

enum class RunState {
  kStarting,  // no step has been logged
  kRunning,
  kSilent,  // nothing was logged for much longer than usual: it waits, or was killed
  kCompleted,
  kStopped,  // on request
  kFailed,
};

struct RunSummary {
  RunState state = RunState::kStarting;
  double step = 0;
  double total_steps = 0;  // 0 where unknown
  double last_logged = 0;  // unix time
  std::optional<double> tokens, loss, tps, mfu, memory_gib;
  std::vector<std::pair<std::string, double>> validation;  // the last loss of each set
  std::optional<double> step_seconds;                      // of the last steps
  std::optional<double> seconds_left;                      // at that rate; of a run that goes on
  double elapsed = 0;  // since the first start, until the last record or now if it goes on
  // Time in steps that count as a share of `elapsed`: what building, loading, failures, repeated steps and waiting for
  // a restart leave.
  std::optional<double> goodput;
  int64_t restarts = 0;
};

// `now` is unix time.
RunSummary summarize(const RunData& run, double now);

// "running", "no news", ...
std::string to_string(RunState state);

}  // namespace titanium::observe
