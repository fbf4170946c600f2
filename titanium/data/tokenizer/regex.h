// Regular expressions of tokenizer.json: Oniguruma's Ruby syntax over UTF-8, matched by PCRE2 with its JIT compiler.
#pragma once

#include <memory>
#include <string>
#include <string_view>

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

  // The leftmost match in `subject` (valid UTF-8) that begins at `from` or later. Returns false when there is none.
  // Thread-safe. Throws Error when the pattern needs more steps or memory than any sane pattern does.
  bool find(std::string_view subject, size_t from, Match& match) const;

 private:
  std::shared_ptr<const void> code_;  // pcre2_code
  bool compiled_to_machine_code_;
};

}  // namespace titanium::data
