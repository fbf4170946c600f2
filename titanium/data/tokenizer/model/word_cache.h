// Remembers the ids of words that came before. Not thread-safe: every thread has its own.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/model/vocabulary.h"

namespace titanium::data {

// A hash table of bounded size: when it is full, it forgets everything and starts again (text has few frequent words,
// so that they are back at once).
class WordCache {
 public:
  static constexpr size_t kMaxWord = 64;  // longer words are rare and are not kept
  static constexpr size_t kMaxIds = 64;

  // The ids of `word`; an empty span when it is not known.
  std::span<const TokenId> find(std::string_view word, uint64_t hash) const {
    for (size_t at = hash & (kSlots - 1);; at = (at + 1) & (kSlots - 1)) {
      const Slot& slot = slots_[at];
      if (slot.id_count == 0) return {};
      if (slot.hash == hash && slot.length == word.size() &&
          std::memcmp(bytes_.data() + slot.bytes_at, word.data(), word.size()) == 0) {
        return {ids_.data() + slot.ids_at, slot.id_count};
      }
    }
  }

  // `word` is at most kMaxWord bytes and `ids` 1 to kMaxIds long.
  void insert(std::string_view word, uint64_t hash, std::span<const TokenId> ids);

 private:
  static constexpr size_t kSlots = 1 << 16;

  struct Slot {
    uint64_t hash = 0;
    uint32_t bytes_at = 0;
    uint32_t ids_at = 0;
    uint32_t length = 0;
    uint32_t id_count = 0;  // 0: free
  };

  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::vector<char> bytes_;
  std::vector<TokenId> ids_;
  size_t used_ = 0;
};

}  // namespace titanium::data
