// The proof that a table can be run.
#pragma once

#include <limits>

#include "titanium/schedule/table.h"

namespace titanium::schedule {

struct Limits {
  int live_activations = std::numeric_limits<int>::max();  // that any rank may hold at once
};

// Returns if
//  - every stage has a rank, and every rank a stage;
//  - each micro-batch of each stage has one F, and one B or else one I and one W, on the rank that owns the stage;
//  - on each rank F stands before B or I, and I before W;
//  - pairs are a forward and a backward of another micro-batch;
//  - no rank holds more activations than allowed;
//  - the ranks come to the end when each runs its list in order, waiting for activations and gradients of other stages.
// Otherwise throws UsageError with the rank, the position in its list (from 1) and the action.
void check_table(const Table& table, const Limits& limits = {});

}  // namespace titanium::schedule
