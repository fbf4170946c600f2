// The normaliser of SentencePiece models: compiled rules, white space, and the mark that stands for a space.
#pragma once

#include "titanium/data/tokenizer/model/piece_trie.h"
#include "titanium/data/tokenizer/normalizer.h"
#include "titanium/data/tokenizer/text/charsmap.h"

namespace titanium::data {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

class SentencePieceNormalizer : public NormalizerStep {
 public:
  // "charsmap" (base64), "add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces",
  // "treat_whitespace_as_suffix", and "protected": a list of texts that no rule changes. Throws Error.
  explicit SentencePieceNormalizer(const Json& json);

  std::string apply(std::string_view text) const override;

 private:
  // What the front of `text` becomes, and how many bytes that was.
  std::pair<std::string_view, size_t> normalize_prefix(std::string_view text) const;
  void append(std::string& out, std::string_view normalized) const;

  Charsmap rules_;
  std::vector<std::string> protected_texts_;
  PieceTrie protected_;
  bool dummy_prefix_;
  bool one_space_;
  bool mark_spaces_;
  bool space_is_suffix_;
};

}  // namespace titanium::data
