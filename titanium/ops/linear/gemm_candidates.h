// What training steps say of a product's candidates, the algorithms that the library names for it, its first choice
// first: Note [Choice of algorithms] in gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace titanium::ops {

struct StepTime {
  int64_t samples = 0;
  double median_us = 0;
};
StepTime step_time(std::vector<double> samples_us);

// The candidate with the smallest median. One that had no turn is not known; at least one had.
size_t fastest_candidate(const std::vector<StepTime>& times);
// The fastest, and behind it all that the steps do not show to be slower by more than a tenth: the clock of the step
// falls with the energy of all its products, so an algorithm's own time says only that much. A candidate with too few
// samples for a median stays.
std::vector<size_t> near_candidates(const std::vector<StepTime>& times);

}  // namespace titanium::ops
