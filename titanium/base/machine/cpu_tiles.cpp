#include "titanium/base/machine/cpu_tiles.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace titanium {
namespace {

constexpr int kLeafOfTiles = 0x1d;

// The rest of the first line that begins with `key`.
std::string_view line_of(std::string_view text, std::string_view key) {
  const size_t begin = text.find(key);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + key.size());
  return text.substr(0, text.find('\n'));
}

}  // namespace

bool hides_amx_tiles(std::string_view cpuinfo) {
  if (line_of(cpuinfo, "flags").find(" amx_tile") == std::string_view::npos) return false;
  const std::string_view level = line_of(cpuinfo, "cpuid level");
  const size_t digits = level.find_first_of("0123456789");
  int leaf = kLeafOfTiles;
  if (digits != std::string_view::npos) std::from_chars(level.data() + digits, level.data() + level.size(), leaf);
  return leaf < kLeafOfTiles;
}

void avoid_hidden_amx_tiles() {
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (hides_amx_tiles(text)) ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", /*overwrite=*/0);
}

}  // namespace titanium
