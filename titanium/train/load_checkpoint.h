// What a run begins with: its own last checkpoint, someone else's weights, or nothing.
#pragma once

#include <filesystem>
#include <optional>

#include "titanium/train/train_state.h"

namespace titanium::train {

struct LoadSource {
  std::filesystem::path folder;
  bool hugging_face = false;
  bool model_only = false;
  std::optional<int64_t> step;  // of a checkpoint of this run; none: the run begins with it
};

// The folder of the run's checkpoints: checkpoint.folder below job.dump_folder, or itself when it is an address.
std::filesystem::path checkpoint_root(const JobConfig& config);

// Nothing without checkpoint.enable, and when there is nothing to load. A run that has saved goes on from there,
// whatever initial_load_* says. All ranks call it together; what a killed run has left is removed before. Throws
// UsageError for a folder or step that does not exist.
std::optional<LoadSource> find_load_source(const JobConfig& config, comm::Group& world);

// Throws the UsageError that find_load_source would throw. For one process, which looks alone and removes nothing.
void check_load_source(const JobConfig& config);

// Whether the model is among what is loaded; it needs no initial weights then.
bool fills_model(const LoadSource& source, const config::Checkpoint& options);

// Loads into a run that is built. When a checkpoint of this run is damaged, the Error names the newest whole one and
// the option that uses it.
void load_checkpoint(TrainState& run, const LoadSource& source);

}  // namespace titanium::train
