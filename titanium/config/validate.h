// Rules that span several options.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "titanium/config/job_config.h"

namespace titanium::config {

struct Problem {
  std::vector<std::string> options;  // what the rule looked at; the first is the one to change or look up
  std::string sentence;
};

// All broken rules. Without `world_size`, rules that need it are left out.
std::vector<Problem> validate(const JobConfig& config, std::optional<int64_t> world_size = std::nullopt);

// The smallest number of ranks that has these degrees; data_parallel_shard_degree = -1 counts as 1.
int64_t fewest_ranks(const Parallelism& degrees);

}  // namespace titanium::config
