// The folders of a run's checkpoints, `step-<N>` each, and what a run that was killed has left beside them. `root` may
// be the address of a folder in a bucket: Note [Whole or not there, in a bucket].
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace titanium::checkpoint {

std::filesystem::path step_folder(const std::filesystem::path& root, int64_t step);

// Steps with a whole checkpoint, ascending: those whose folder has `.metadata` or Hugging Face weights, which appear
// last.
std::vector<int64_t> saved_steps(const std::filesystem::path& root);

// N of `step-<N>`.
std::optional<int64_t> step_of_name(const std::string& name);
// Whether a file of this name in a step makes it whole.
bool is_marker(const std::string& name);

// What stands below `root`, whole or not, ascending.
struct ListedStep {
  int64_t step = 0;
  bool whole = false;
  int64_t files = 0;
  int64_t bytes = 0;
};
std::vector<ListedStep> list_steps(const std::filesystem::path& root);

// The folder in which a checkpoint is written. Its name is one that nobody takes for a checkpoint; in a bucket it is
// that of the step.
std::filesystem::path writing_folder(const std::filesystem::path& root, int64_t step);
// Makes it, empty. Throws Error.
void begin_step(const std::filesystem::path& root, int64_t step);
// Removes what was begun and failed. What cannot be removed is logged.
void abandon_step(const std::filesystem::path& root, int64_t step);
// Removes what was left under such names and logs it.
void remove_unfinished(const std::filesystem::path& root);

// Gives the unfinished folder its place, where it has none yet: all at once, also when there is a checkpoint of that
// step, which is removed. On the disk when it returns. Throws Error.
void publish_step(const std::filesystem::path& root, int64_t step);

// Removes the oldest checkpoints but `keep`. What cannot be removed is logged.
void remove_old_steps(const std::filesystem::path& root, int64_t keep);

}  // namespace titanium::checkpoint
