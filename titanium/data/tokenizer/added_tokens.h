// Tokens that are found in the text before it is split into words: special tokens and others added to the model's own.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "titanium/data/tokenizer.h"
#include "titanium/data/tokenizer/model/vocabulary.h"
#include "titanium/data/tokenizer/normalizer.h"

namespace titanium::data {

struct AddedToken {
  std::string content;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool normalized = true;    // is looked for in the normalised text, in its normalised form
  bool special = false;      // left out by decode(skip_special_tokens)
  bool literal = false;      // is looked for in the normalised text as it stands
  bool in_text = true;       // else a text that looks like it stays text

  bool operator==(const AddedToken&) const = default;
};

// A part of a text: an added token, or text between them (id -1).
struct TextPart {
  TokenId id;
  size_t begin;
  size_t end;
};

// Immutable once built; matching is thread-safe.
class AddedTokens {
 public:
  // Tokens that the model knows keep their id, the others get the next free one. Empty and known tokens are ignored.
  void add(const std::vector<AddedToken>& tokens, const Vocabulary& model, const Normalizer& normalizer);

  // Cuts `text` at the tokens that are looked for before (or, `normalized`, after) normalisation. Throws Error for a
  // special token where it must not stand in a text.
  void split(std::string_view text, bool normalized, SpecialInText special, std::vector<TextPart>& parts) const;
  bool empty(bool normalized) const { return patterns_[normalized].empty(); }

  std::optional<TokenId> id(std::string_view content) const;
  const std::string* text(TokenId id) const;  // as decode() writes it; null: not an added token
  bool is_special(std::string_view text) const { return special_.contains(std::string(text)); }
  const std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>& ids() const { return ids_; }

 private:
  // A byte trie; finds the longest pattern that begins at a place.
  class Patterns {
   public:
    void add(std::string_view pattern, TokenId id);
    bool empty() const { return nodes_.size() == 1; }
    // The leftmost, then longest pattern at `from` or later.
    bool find(std::string_view text, size_t from, TextPart& match) const;

   private:
    std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
    std::vector<TokenId> nodes_ = {-1};             // the pattern that ends here
    std::array<bool, 256> begins_{};
  };

  void rebuild_patterns();

  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> ids_;
  std::map<TokenId, AddedToken> tokens_;
  std::unordered_map<TokenId, std::string> texts_;  // normalised forms where they differ, else the content
  std::unordered_set<std::string> special_;
  Patterns patterns_[2];
};

}  // namespace titanium::data
