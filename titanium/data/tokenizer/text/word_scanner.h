// The splitting of Llama 3 and Qwen, written out: what the regular expression says, at several times its speed.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace titanium::data {

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
class WordScanner {
 public:
  // The scanner for a regular expression of tokenizer.json that is spelled like that; nothing for any other.
  static std::optional<WordScanner> for_pattern(std::string_view pattern);

  // The end of the word that begins at `begin`, which is inside `text` (valid UTF-8). Every text is words all through.
  size_t word_end(std::string_view text, size_t begin) const;

 private:
  explicit WordScanner(int digits) : digits_(digits) {}
  int digits_;  // the longest number
};

}  // namespace titanium::data
