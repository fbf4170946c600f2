// Whether a bucket can hold checkpoints: every rank writes an object and reads it again, and all ranks find those of
// all others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "titanium/doctor/finding.h"

namespace titanium::doctor {

struct BucketRequest {
  std::string address;  // s3:// or gs://, as checkpoint.folder has it
  std::string trial;    // name of the trial, the same on all ranks
  int64_t bytes = 0;    // that each rank writes and reads
  int rank = 0;
  int world_size = 1;
  std::function<void()> barrier;  // all ranks are here
};

// Called by all ranks together, whatever one of them finds. Leaves nothing behind. Write and read rates are those of
// this rank while all others do the same.
std::vector<Finding> check_bucket(const BucketRequest& request);

}  // namespace titanium::doctor
