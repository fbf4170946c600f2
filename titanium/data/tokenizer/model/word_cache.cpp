#include "titanium/data/tokenizer/model/word_cache.h"

#include <algorithm>

namespace titanium::data {

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const TokenId> ids) {
  if (used_ == kSlots / 2) {
    std::ranges::fill(slots_, Slot{});
    bytes_.clear();
    ids_.clear();
    used_ = 0;
  }
  size_t at = hash & (kSlots - 1);
  while (slots_[at].id_count != 0) at = (at + 1) & (kSlots - 1);
  slots_[at] = {hash, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(ids_.size()),
                static_cast<uint32_t>(word.size()), static_cast<uint32_t>(ids.size())};
  bytes_.insert(bytes_.end(), word.begin(), word.end());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

}  // namespace titanium::data
