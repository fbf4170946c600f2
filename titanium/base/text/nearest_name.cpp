#include "titanium/base/text/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace titanium {
namespace {

constexpr size_t kLongestName = 256;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kLongestName) return std::nullopt;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  std::optional<std::string> best;
  for (const std::string& candidate : candidates) {
    // Two names are at least as far apart as their lengths.
    const size_t apart = std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
    if (apart >= best_distance) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace titanium
