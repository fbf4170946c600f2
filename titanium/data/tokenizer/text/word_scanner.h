// The splitting of Llama 3 and Qwen, and that of Llama 4, GPT-OSS and tekken, written out: what the regular expressions
// say, at several times their speed.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace titanium::data {

// Words of letters:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Words that end where small letters end, with UPPER = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and
// LOWER = [\p{Ll}\p{Lm}\p{Lo}\p{M}]; CONTRACTION is as above, or is not there:
//   [^\r\n\p{L}\p{N}]?UPPER*LOWER+CONTRACTION?|[^\r\n\p{L}\p{N}]?UPPER+LOWER*CONTRACTION?|\p{N}{1,digits}|
//   ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
class WordScanner {
 public:
  // The scanner for a regular expression of tokenizer.json that is spelled like that; nothing for any other.
  static std::optional<WordScanner> for_pattern(std::string_view pattern);

  // The end of the word that begins at `begin`, which is inside `text` (valid UTF-8). Every text is words all through.
  size_t word_end(std::string_view text, size_t begin) const;

 private:
  enum class Words { kOfLetters, kByCase, kByCaseWithContractions };
  WordScanner(Words words, int digits) : words_(words), digits_(digits) {}
  // The end of a word by case, or of capital letters alone; 0 when none begins at `begin`.
  size_t cased_end(std::string_view text, size_t begin) const;

  Words words_;
  int digits_;  // the longest number
};

}  // namespace titanium::data
