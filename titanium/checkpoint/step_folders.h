// The folders of a run's checkpoints, `step-<N>` each, and what a run that was killed has left beside them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace titanium::checkpoint {

std::filesystem::path step_folder(const std::filesystem::path& root, int64_t step);

// Steps with a whole checkpoint, ascending: those whose folder has `.metadata` or Hugging Face weights, which appear
// last.
std::vector<int64_t> saved_steps(const std::filesystem::path& root);

// What is written or removed has a name that nobody takes for a checkpoint.
std::filesystem::path unfinished_folder(const std::filesystem::path& root, int64_t step);
// Removes what was left under such names and logs it.
void remove_unfinished(const std::filesystem::path& root);

// Gives the unfinished folder its place: all at once, also when there is a checkpoint of that step, which is removed.
// On the disk when it returns. Throws Error.
void publish_step(const std::filesystem::path& root, int64_t step);

// Removes the oldest checkpoints but `keep`. What cannot be removed is logged.
void remove_old_steps(const std::filesystem::path& root, int64_t keep);

}  // namespace titanium::checkpoint
