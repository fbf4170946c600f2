#include "titanium/data/tokenizer/text/charsmap.h"

#include <cstring>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

// A unit of the double array (the format of darts-clone).
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view compiled) {
  if (compiled.empty()) return;
  uint32_t trie_bytes = 0;
  const bool has_size = compiled.size() > sizeof trie_bytes;
  if (has_size) std::memcpy(&trie_bytes, compiled.data(), sizeof trie_bytes);
  TI_CHECK(
      has_size && trie_bytes > 0 && trie_bytes % 4 == 0 && trie_bytes < compiled.size() - 4 && compiled.ends_with('\0'),
      "the compiled normalisation rules are cut short. Fetch the file again.");
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), compiled.data() + 4, trie_bytes);
  replacements_ = compiled.substr(4 + trie_bytes);
}

std::pair<std::string_view, size_t> Charsmap::replace_prefix(std::string_view text) const {
  std::pair<std::string_view, size_t> longest{"", 0};
  if (units_.empty()) return longest;
  size_t node = offset_of(units_[0]);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    const size_t value = value_of(units_[node]);
    if (value < replacements_.size()) longest = {std::string_view(replacements_.c_str() + value), at + 1};
  }
  return longest;
}

}  // namespace titanium::data
