#include "titanium/data/tokenizer/model/vocabulary.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

#include "titanium/data/tokenizer/text/byte_hash.h"

namespace titanium::data {
namespace {

uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

Vocabulary::Vocabulary(const TokenList& tokens) {
  std::unordered_map<std::string_view, size_t> last;
  last.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) last[tokens[i].first] = i;
  std::vector<size_t> order;
  order.reserve(last.size());
  for (const auto& [token, index] : last) order.push_back(index);
  std::ranges::sort(
      order, [&](size_t a, size_t b) { return std::pair(tokens[a].second, a) < std::pair(tokens[b].second, b); });
  slots_.resize(std::bit_ceil(std::max<size_t>(2, order.size() * 2)));
  begins_.push_back(0);
  for (const size_t index : order) {
    const auto& [token, id] = tokens[index];
    bytes_.insert(bytes_.end(), token.begin(), token.end());
    begins_.push_back(static_cast<uint32_t>(bytes_.size()));
    ids_.push_back(id);
    const uint64_t hash = hash_bytes(token);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].entry != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {tag_of(hash), static_cast<uint32_t>(ids_.size())};
  }
}

std::optional<TokenId> Vocabulary::id(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t hash = hash_bytes(token);
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.entry == 0) return std::nullopt;
    if (slot.tag == tag_of(hash) && token_at(slot.entry - 1) == token) return ids_[slot.entry - 1];
  }
}

std::optional<std::string_view> Vocabulary::token(TokenId id) const {
  const auto after = std::ranges::upper_bound(ids_, id);
  if (after == ids_.begin() || *(after - 1) != id) return std::nullopt;
  return token_at(static_cast<size_t>(after - ids_.begin()) - 1);
}

}  // namespace titanium::data
