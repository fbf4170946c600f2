// All ranks write one checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "titanium/checkpoint/step_folders.h"
#include "titanium/comm/group.h"

namespace titanium::checkpoint {

struct SaveWork {
  // On rank 0, before the others: files that all of them need. May be empty.
  std::function<void(const std::filesystem::path& folder)> prepare;
  // On every rank: its share. What it returns is sent to rank 0.
  std::function<std::string(const std::filesystem::path& folder)> write;
  // On rank 0, when all have written: what makes the folder whole.
  std::function<void(const std::filesystem::path& folder, const std::vector<std::string>& parts)> complete;
};

// The checkpoint of `step` below `root` appears whole or not at all. All ranks of the group, whose tensors are in host
// memory, call it together. If one of them fails, all throw the Error of the first, and nothing is left.
void save_together(comm::Group& group, const std::filesystem::path& root, int64_t step, const SaveWork& work);

}  // namespace titanium::checkpoint
