// Which block recomputes what, from [activation_checkpoint].
#pragma once

#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/nn/block_saves.h"

namespace titanium::parallel {

// One decision per block. "none": everything is kept. "full": only inputs. "selective" with a number N: every Nth block
// keeps only its input, the others everything; with "op": every block keeps its attention half. Throws UsageError for a
// selective_ac_option that is neither.
std::vector<nn::BlockSaves> plan_activation_checkpoint(const config::ActivationCheckpoint& options, int64_t blocks);

}  // namespace titanium::parallel
