// What training steps and short loops say of a product's candidates, the algorithms that the library names for it, its
// first choice first: Note [Choice of algorithms] in gemm.h.
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
// Those that are worth long loops, in order: the library's first, the fastest of the steps, and the four that took the
// least in short loops.
std::vector<size_t> finalists(const std::vector<double>& short_loops_us, size_t fastest_in_steps);

}  // namespace titanium::ops
