#include "titanium/ops/linear/gemm_candidates.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace titanium::ops {

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

std::vector<size_t> finalists(const std::vector<double>& short_loops_us, size_t fastest_in_steps) {
  constexpr size_t kBest = 4;
  std::vector<size_t> order(short_loops_us.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return short_loops_us[i]; });
  order.resize(std::min(order.size(), kBest));
  order.push_back(0);
  order.push_back(fastest_in_steps);
  std::ranges::sort(order);
  const auto doubled = std::ranges::unique(order);
  order.erase(doubled.begin(), doubled.end());
  return order;
}

}  // namespace titanium::ops
