// Byte pair encoding, from whichever file its merges come.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "titanium/data/tokenizer/model/model.h"

namespace titanium::data {

struct BpeOptions {
  std::optional<std::string> unk_token = std::nullopt;
  bool fuse_unk = false;
  bool byte_fallback = false;           // an unknown character becomes its bytes as <0x..> tokens
  bool ignore_merges = false;           // a word that is in the vocabulary is one token
  bool byte_level = false;              // words are bytes, the vocabulary is spelled in the byte alphabet
  bool whole_words = false;             // no pieces: a word is its token or unk_token (Hugging Face's WordLevel)
  std::string end_of_word_suffix = {};  // with which the last character of a word is spelled, as "</w>" of CLIP
};

// What a pair of neighbours becomes, and how early.
struct Merge {
  uint32_t rank;
  TokenId merged;
};

struct PairMerge {
  TokenId left;
  TokenId right;
  Merge merge;
};

// Hash table with open addressing from a pair of ids to its merge.
class MergeTable {
 public:
  MergeTable() = default;
  explicit MergeTable(const std::vector<PairMerge>& merges);  // the last one of a pair counts

  const Merge* find(TokenId left, TokenId right) const {
    const uint64_t pair = key(left, right);
    for (size_t at = home(pair);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].pair == pair) return &slots_[at].merge;
      if (slots_[at].pair == kEmpty) return nullptr;
    }
  }

  // Whether a merge joins something that does not end with `marker` to something that begins with it.
  bool joins_across(std::string_view marker, const Vocabulary& vocabulary) const;

  template <typename Archive>
  void exchange(Archive& archive) {
    archive(slots_);
  }

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge = {};
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t pair) const { return ((pair * 0x9E3779B97F4A7C15u) >> 32) & (slots_.size() - 1); }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
};

// All that takes time to compute of a BPE model.
struct BpeTables {
  Vocabulary vocabulary;
  MergeTable merges;
  Vocabulary words;  // the words that are one token whatever the merges say; bytes where the model is byte-level

  template <typename Archive>
  void exchange(Archive& archive) {
    vocabulary.exchange(archive);
    merges.exchange(archive);
    words.exchange(archive);
  }
};

using MergeList = std::vector<std::pair<std::string, std::string>>;

// Merges in their order, as tokenizer.json and merges.txt have them. Throws Error when a merge names a token that is
// not in the vocabulary.
BpeTables tables_of_merges(Vocabulary vocabulary, const MergeList& merges, const BpeOptions& options);

// A piece that neighbours may become; of several possible ones that with the lowest rank comes first.
struct RankedPiece {
  std::string text;
  TokenId id;
  uint32_t rank;
};

// Every pair of `pieces` that together are one of them, as tiktoken and SentencePiece merge: a piece may come from
// several pairs, and one that comes from none is reached as a whole word alone.
std::vector<PairMerge> merges_of_pieces(const std::vector<RankedPiece>& pieces);

// A word is cut into characters (or bytes), then neighbours are merged, earliest merge first, leftmost first.
class Bpe : public Model {
 public:
  Bpe(BpeTables tables, BpeOptions options);

  // Characters without a token vanish unless the options say otherwise. Time is O(n log n) in the length of the word.
  // Throws Error for a word of more than 16 MiB.
  void encode(std::string_view word, std::vector<TokenId>& ids) const override;

  const Vocabulary& vocabulary() const override { return tables_.vocabulary; }

  // Whether text may be cut before every `marker` that follows something else without changing the ids.
  bool never_joins_across(std::string_view marker) const;

 private:
  void encode_whole(std::string_view word, std::vector<TokenId>& ids) const;
  void append_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  bool append_byte_fallback(std::string_view character, std::vector<TokenId>& symbols) const;
  void merge_short(std::vector<TokenId>& ids, size_t begin) const;
  void merge_long(std::vector<TokenId>& ids, size_t begin) const;

  BpeTables tables_;
  BpeOptions options_;
  std::optional<TokenId> unk_;
  std::array<TokenId, 256> byte_ids_{};       // byte level: the token of a byte, or -1
  std::array<TokenId, 256> last_byte_ids_{};  // likewise for the last byte of a word
  std::array<TokenId, 256> fallback_ids_{};   // the token <0x..> of a byte, or -1
  bool has_every_byte_ = false;
};

}  // namespace titanium::data
