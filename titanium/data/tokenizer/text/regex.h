// Regular expressions of tokenizer.json: Oniguruma's Ruby syntax over UTF-8, matched by PCRE2 with its JIT compiler.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "titanium/data/tokenizer/files/json_fields.h"

namespace titanium::data {

// `pattern` in the words of PCRE2, with the same meaning: \s, \d, \w and \p{...} stand for the character classes of
// Unicode 16. Throws Error for a construct that would mean something else (the message names it).
std::string oniguruma_to_pcre2(std::string_view pattern);

// `text` as a pattern that matches just that text.
std::string escape_for_pcre2(std::string_view text);

class Regex {
 public:
  // `pattern` in PCRE2's syntax. Throws Error when it does not compile.
  explicit Regex(const std::string& pattern);

  struct Match {
    size_t begin;
    size_t end;
  };

  // What the searches in one text have looked at, in bytes, beyond the first kilobyte of each.
  struct Effort {
    size_t bytes = 0;
  };

  // The leftmost match in `subject` (valid UTF-8) that begins at `from` or later. Returns false when there is none.
  // Thread-safe. Throws Error when the pattern needs more steps or memory than any sane pattern does, and when all
  // searches in `subject` together have looked at much more than it is long: a pattern such as a*b|a looks at
  // everything that follows for every match of one byte.
  bool find(std::string_view subject, size_t from, Match& match, Effort& effort) const;
  bool find(std::string_view subject, size_t from, Match& match) const {
    Effort effort;
    return find(subject, from, match, effort);
  }

 private:
  int match_in(std::string_view subject, size_t from, uint32_t options, Match& match) const;

  std::shared_ptr<const void> code_;  // pcre2_code
  bool compiled_to_machine_code_;
};

// The "pattern" of a part of tokenizer.json: {"Regex": ...} or {"String": ...}. Throws Error for anything else.
Regex parse_pattern(const Json& pattern);

// `text` with every match of `pattern` replaced by `content`.
std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content);

}  // namespace titanium::data
