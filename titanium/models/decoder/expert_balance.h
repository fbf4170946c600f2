// Balance of experts without a loss of its own: a bias on the scores of each expert, which moves against its load.
#pragma once

#include <vector>

#include "titanium/models/decoder/parts.h"
#include "titanium/parallel/mesh.h"

namespace titanium::models::decoder {

// Sums the tokens of all layers' experts over all ranks, in one reduction, moves each bias by its coefficient against
// the sign of the load's distance from the mean, centred, and sets the counts to 0. Only queues work. Returns the sums,
// [layers, E], int64.
Tensor balance_experts(const std::vector<ExpertLoad>& loads, const parallel::Mesh& mesh);

}  // namespace titanium::models::decoder
