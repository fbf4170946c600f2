// The environment that torchrun gives to its workers.
#pragma once

#include <string>
#include <vector>

#include "titanium/comm/environment.h"

namespace titanium::launch {

// `inherited` (NAME=value) with the variables of `place` set. OMP_NUM_THREADS becomes the node's `cores` divided by its
// processes, unless it is there already.
std::vector<std::string> worker_environment(const comm::Environment& place, int max_restarts, int cores,
                                            const std::vector<std::string>& inherited);

}  // namespace titanium::launch
