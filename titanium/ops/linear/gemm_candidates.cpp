#include "titanium/ops/linear/gemm_candidates.h"

#include <algorithm>
#include <limits>

namespace titanium::ops {
namespace {

constexpr double kNear = 1.1;
constexpr int64_t kFewestSamples = 3;  // the first call of an algorithm also loads it

}  // namespace

StepTime step_time(std::vector<double> samples_us) {
  if (samples_us.empty()) return {};
  const auto middle = samples_us.begin() + static_cast<std::ptrdiff_t>(samples_us.size() / 2);
  std::ranges::nth_element(samples_us, middle);
  return {static_cast<int64_t>(samples_us.size()), *middle};
}

size_t fastest_candidate(const std::vector<StepTime>& times) {
  const auto us = [](const StepTime& time) {
    return time.samples == 0 ? std::numeric_limits<double>::infinity() : time.median_us;
  };
  return static_cast<size_t>(std::ranges::min_element(times, {}, us) - times.begin());
}

std::vector<size_t> near_candidates(const std::vector<StepTime>& times) {
  const size_t fastest = fastest_candidate(times);
  std::vector<size_t> near = {fastest};
  for (size_t i = 0; i < times.size(); ++i) {
    const bool is_near = times[i].samples < kFewestSamples || times[i].median_us <= kNear * times[fastest].median_us;
    if (i != fastest && is_near) near.push_back(i);
  }
  return near;
}

}  // namespace titanium::ops
