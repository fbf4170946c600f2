#include "titanium/data/tokenizer/word_cache.h"

#include <algorithm>

namespace titanium::data {
namespace {

uint64_t load(const char* bytes, size_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

uint64_t WordCache::hash(std::string_view word) {
  constexpr uint64_t kSeed = 0x9E3779B97F4A7C15u;
  uint64_t state = word.size() * 0xD6E8FEB86659FD93u;
  const char* at = word.data();
  size_t left = word.size();
  for (; left > 8; left -= 8, at += 8) state = mix(state ^ load(at, 8), kSeed);
  return mix(state ^ load(at, left), kSeed ^ 0xA0761D6478BD642Fu);
}

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
