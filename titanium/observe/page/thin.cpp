#include "titanium/observe/page/thin.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace titanium::observe {

std::vector<size_t> thin(std::span<const double> values, size_t most) {
  const size_t count = values.size();
  if (count <= most || most < 4) {
    std::vector<size_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<size_t> kept = {0};
  const size_t ranges = most / 2 - 1;
  for (size_t range = 0; range < ranges; ++range) {
    const size_t begin = count * range / ranges, end = count * (range + 1) / ranges;
    size_t least = begin, greatest = begin;
    for (size_t i = begin; i < end; ++i) {
      if (std::isnan(values[i])) continue;
      if (std::isnan(values[least]) || values[i] < values[least]) least = i;
      if (std::isnan(values[greatest]) || values[i] > values[greatest]) greatest = i;
    }
    for (const size_t i : {std::min(least, greatest), std::max(least, greatest)}) {
      if (i > kept.back()) kept.push_back(i);
    }
  }
  if (kept.back() != count - 1) kept.push_back(count - 1);
  return kept;
}

}  // namespace titanium::observe
