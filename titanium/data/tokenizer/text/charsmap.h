// SentencePiece's compiled normalisation rules: a double-array trie of what is replaced, and the replacements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace titanium::data {

// Immutable and thread-safe.
class Charsmap {
 public:
  Charsmap() = default;  // replaces nothing
  // The bytes of precompiled_charsmap. Throws Error when they are cut short.
  explicit Charsmap(std::string_view compiled);

  // The longest rule that `text` begins with: its replacement and the bytes that it replaces; 0 bytes: there is none.
  std::pair<std::string_view, size_t> replace_prefix(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a NUL
};

}  // namespace titanium::data
