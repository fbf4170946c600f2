// Which block recomputes what, from [activation_checkpoint].
#pragma once

#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/nn/block.h"

namespace titanium::parallel {

// The level of each block, of the blocks' own lists, which may differ. "none": the first. "full": the last, only the
// input. "selective" with a number N: every Nth block takes its last level, the others their first; with "op": every
// block takes the level before its last. "memory_budget": as much as fits into that share of what "none" keeps, where
// all blocks come down to a level before one of them goes further: what a level gives up first takes the least time per
// byte. Throws UsageError for a selective_ac_option that is neither.
std::vector<size_t> plan_activation_checkpoint(const config::ActivationCheckpoint& options,
                                               const std::vector<nn::SaveLevels>& blocks);

}  // namespace titanium::parallel
