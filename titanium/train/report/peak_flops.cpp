#include "titanium/train/report/peak_flops.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "titanium/base/log.h"

namespace titanium::train {
namespace {

struct Peak {
  std::string_view part;     // of the device's name
  std::string_view variant;  // another part that must be in it too
  double flops;
};

// The first match counts, so longer names stand before the names that they contain.
constexpr std::array kPeaks = {
    Peak{"A100", "", 312e12},   Peak{"H100", "NVL", 835e12},  Peak{"H100", "PCIe", 756e12}, Peak{"H100", "", 989e12},
    Peak{"H200", "", 989e12},   Peak{"H20", "", 148e12},      Peak{"GB200", "", 2.5e15},    Peak{"GB300", "", 2.5e15},
    Peak{"B200", "", 2.25e15},  Peak{"B300", "", 2.25e15},    Peak{"MI355X", "", 2.5e15},   Peak{"MI300X", "", 1.3e15},
    Peak{"MI325X", "", 1.3e15}, Peak{"MI250X", "", 191.5e12},  // of one of its two dies
    Peak{"L40S", "", 362e12},   Peak{"A6000", "", 154.85e12},
};
constexpr double kA100 = 312e12;

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

double peak_flops(std::string_view gpu_name) {
  const std::string name = lower(gpu_name);
  for (const Peak& peak : kPeaks) {
    if (name.find(lower(peak.part)) != std::string::npos && name.find(lower(peak.variant)) != std::string::npos) {
      return peak.flops;
    }
  }
  log_warning("Peak flops undefined for: {}, fallback to A100", gpu_name);
  return kA100;
}

}  // namespace titanium::train
