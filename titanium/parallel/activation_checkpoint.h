// Which block recomputes what, from [activation_checkpoint].
#pragma once

#include <functional>
#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/nn/block_saves.h"

namespace titanium::parallel {

// Bytes that a block keeps per token.
using SavedBytes = std::function<int64_t(nn::BlockSaves)>;

// One decision per block. "none": everything is kept. "full": only inputs. "selective" with a number N: every Nth block
// keeps only its input, the others everything; with "op": every block keeps its attention half. "memory_budget": as
// much as fits into that share of what "none" keeps, where the feed-forward products are given up before whole blocks:
// they take the least time per byte. Throws UsageError for a selective_ac_option that is neither.
std::vector<nn::BlockSaves> plan_activation_checkpoint(const config::ActivationCheckpoint& options, int64_t blocks,
                                                       const SavedBytes& saved_bytes);

}  // namespace titanium::parallel
