// Whether a folder can hold checkpoints: all ranks write into one folder, one rename makes it a checkpoint, and all
// ranks find it under its new name. This does the same with small files.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "titanium/doctor/finding.h"

namespace titanium::doctor {

struct StorageRequest {
  std::filesystem::path folder;             // need not exist; its nearest parent that does is tried then
  std::string label = "checkpoint folder";  // what the folder is for
  std::string trial;                        // name of the trial, the same on all ranks
  int64_t bytes = 0;                        // that each rank writes and reads
  int64_t checkpoint_bytes = 0;             // that a checkpoint of the run takes in all; 0 when unknown
  int rank = 0;
  int world_size = 1;
  std::function<void()> barrier;  // all ranks are here
  std::chrono::milliseconds patience{
      5000};  // for a renamed folder to appear: network file systems remember for a while
};

// Called by all ranks together, whatever one of them finds. Leaves nothing behind. Write and read rates are those of
// this rank while all others do the same.
std::vector<Finding> check_storage(const StorageRequest& request);

}  // namespace titanium::doctor
