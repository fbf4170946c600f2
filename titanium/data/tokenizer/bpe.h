// The "model" of tokenizer.json: from words to ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace titanium::data {

using TokenId = int32_t;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// Token strings and their ids, both ways.
class Vocabulary {
 public:
  void add(std::string token, TokenId id);
  std::optional<TokenId> id(std::string_view token) const;
  const std::string* token(TokenId id) const;  // null: no such id
  size_t size() const { return ids_.size(); }
  const std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>& ids() const { return ids_; }

 private:
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> ids_;
  std::unordered_map<TokenId, std::string> tokens_;
};

struct BpeOptions {
  std::optional<std::string> unk_token = std::nullopt;
  bool fuse_unk = false;
  bool byte_fallback = false;  // an unknown character becomes its bytes as <0x..> tokens
  bool ignore_merges = false;  // a word that is in the vocabulary is one token
  bool byte_level = false;     // words are bytes, the vocabulary is spelled in the byte alphabet
  bool whole_words = false;    // no pieces: a word is its token or unk_token (Hugging Face's WordLevel)
};

using MergeList = std::vector<std::pair<std::string, std::string>>;

// Byte pair encoding: a word is cut into characters, then neighbours are merged, earliest merge first, leftmost first.
// Immutable and thread-safe.
class Bpe {
 public:
  // Throws Error when a merge names a token that is not in the vocabulary.
  Bpe(Vocabulary vocabulary, const MergeList& merges, BpeOptions options);

  // Appends the ids of `word`. Characters without a token vanish unless the options say otherwise. Time is
  // O(n log n) in the length of the word. Throws Error for a word of more than 16 MiB.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    uint32_t rank;
    TokenId merged;
  };

  // Hash table with open addressing from a pair of ids to its merge.
  class MergeTable {
   public:
    void reserve(size_t merges);
    void set(TokenId left, TokenId right, Merge merge);
    const Merge* find(TokenId left, TokenId right) const;

   private:
    struct Slot {
      uint64_t pair = kEmpty;
      Merge merge = {};
    };
    static constexpr uint64_t kEmpty = ~uint64_t{0};
    static uint64_t key(TokenId left, TokenId right) {
      return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    }
    size_t home(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> shift_; }

    std::vector<Slot> slots_ = std::vector<Slot>(2);
    int shift_ = 63;
  };

  void add_merges(const MergeList& merges);
  void encode_whole(std::string_view word, std::vector<TokenId>& ids) const;
  void append_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  bool append_byte_fallback(std::string_view character, std::vector<TokenId>& symbols) const;
  void merge_short(std::vector<TokenId>& ids, size_t begin) const;
  void merge_long(std::vector<TokenId>& ids, size_t begin) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::optional<TokenId> unk_;
  std::array<TokenId, 256> byte_ids_{};  // byte level: the token of a byte, or -1
  bool has_every_byte_ = false;
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> words_;  // with ignore_merges
  MergeTable merges_;
};

}  // namespace titanium::data
