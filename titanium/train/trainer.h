// A whole run: build, train, validate, report.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "titanium/config/reading/load_config.h"
#include "titanium/train/train_state.h"

namespace titanium::train {

struct TrainCallbacks {
  const std::atomic<bool>& stop_requested;  // once set, the run ends after the current step, on all ranks, and is saved
  // Another rank has died or failed, and this one may be waiting for it forever: called on a thread of its own with a
  // line that says what this rank was doing. Ends the process.
  std::function<void(const std::string& line)> on_peer_failure;
  // Everything is built and the first step comes next. May be empty; for tests that need to be inside a run.
  std::function<void(TrainState& run)> on_built = nullptr;
  // Once set, the run is saved after the current step; it is then unset. May be null.
  std::atomic<bool>* save_requested = nullptr;
  // A step has ended on this rank. May be empty.
  std::function<void(int64_t step)> on_step = nullptr;
};

// Trains as the configuration says, together with the other ranks of the launch environment. Ends after training.steps,
// at the end of the data, or when asked to stop. With memory_estimation.enable it logs the memory plan and returns;
// with checkpoint.create_seed_checkpoint it saves the initial model and returns. Throws UsageError before anything is
// built for options that are not available, and Error when the loss stops being finite or a rank cannot be reached.
void train(const config::LoadedConfig& loaded, const TrainCallbacks& callbacks);

}  // namespace titanium::train
