// Checkpoints of a run in a bucket: s3://bucket/folder/step-<N>/... See step_folders.h, which asks here for addresses.
//
// Note [Whole or not there, in a bucket]
// A bucket has no rename. The objects of a checkpoint are written where they stay, and one of them is the last, the
// marker: `.metadata`, or of Hugging Face weights the index or the only file. A step without it is no checkpoint, for
// us and for others. So a checkpoint that is written again or removed loses its marker first, and what a killed run has
// left is known by the lack of it. The files of Hugging Face weights have names that anybody may have given; so while
// they are written, and while any whole checkpoint is removed, the object `.unfinished` stands beside the others and
// says whose they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace titanium::checkpoint {

struct StepObjects {
  int64_t step = 0;
  bool whole = false;
  int64_t bytes = 0;
  std::vector<std::string> addresses;
};

// All steps below the address, ascending. Throws as remote::list_files does.
std::vector<StepObjects> list_step_objects(const std::filesystem::path& root);

// Removes all objects below the address of one step, its marker first. A whole step is marked as unfinished meanwhile,
// so that who is killed over it leaves what the next start removes. Throws.
void remove_step_objects(const std::filesystem::path& folder);
// The same for what was begun and failed: what cannot be removed is logged.
void abandon_step_objects(const std::filesystem::path& folder);

// Whether the object of this name is that mark.
bool says_unfinished(const std::string& name);
// Before the first of a step's objects. Throws.
void mark_unfinished(const std::filesystem::path& folder);
// After the last of them, when the step is whole whether the mark goes or not: a mark that stays is logged, and the
// next start of a run removes it.
void unmark_unfinished(const std::filesystem::path& folder);

// Removes steps that are not whole and consist of nothing but what a save writes, and ends uploads that were begun
// there. What it does is logged.
void remove_unfinished_objects(const std::filesystem::path& root);

}  // namespace titanium::checkpoint
