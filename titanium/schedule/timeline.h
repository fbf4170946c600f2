// When each rank does what: the table run on ideal ranks, where sending costs nothing.
#pragma once

#include <vector>

#include "titanium/schedule/table.h"

namespace titanium::schedule {

// Durations of one micro-batch of one stage; all above zero. A whole backward takes input + weight.
struct Costs {
  double forward = 1;
  double input = 1;
  double weight = 1;
  double hidden_by_overlap = 0;  // what a pair takes less than its two halves
};

// Actions [first, first + count) of a rank's list: one, or the two of a pair, which begin and end together.
struct Step {
  int first = 0;
  int count = 1;
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Step>> ranks;
  double makespan = 0;
  double bubble = 0;  // share of ranks x makespan in which a rank waits
};

// Runs the lists in order; a step starts when its rank is free and what its actions need is there. For tables whose
// actions check_table has found complete. Throws UsageError if ranks wait for each other in a circle, and names the
// circle.
Timeline simulate(const Table& table, const Costs& costs = {});

}  // namespace titanium::schedule
