#include "titanium/base/text/readable.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace titanium {
namespace {

constexpr std::array<double, 4> kSizes = {1e12, 1e9, 1e6, 1e3};

std::string with_unit(double value, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (unit < kSizes.size() && std::abs(value) < kSizes[unit] * 0.9995) ++unit;
  const double scaled = unit < kSizes.size() ? value / kSizes[unit] : value;
  const int digits = std::abs(scaled) >= 99.95 ? 0 : std::abs(scaled) >= 9.995 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", scaled, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return *units[unit] == '\0' ? text : text + " " + units[unit];
}

}  // namespace

std::string readable_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e11) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 86400) return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

std::string readable_count(double count) { return with_unit(count, {"T", "B", "M", "k", ""}); }

std::string readable_bytes(double bytes) { return with_unit(bytes, {"TB", "GB", "MB", "kB", "B"}); }

}  // namespace titanium
