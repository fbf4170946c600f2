#include "titanium/base/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "titanium/base/text/thousands.h"

namespace titanium {
namespace {

struct Character {
  uint32_t code;
  size_t size;  // in bytes; 0: not UTF-8
};

// The character that begins at `text[at]`. Refuses what UTF-8 forbids: forms that are too long, surrogates, and codes
// beyond U+10FFFF.
Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + size > text.size()) return {0, 0};
  uint32_t code = lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool too_long = code < (size == 4 ? 0x10000u : size == 3 ? 0x800u : 0x80u);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (too_long || surrogate || code > 0x10ffff) return {0, 0};
  return {code, size};
}

bool steers_a_terminal(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069);
  return control || separator || direction;
}

std::string escape(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  return code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const size_t size = std::max<size_t>(character.size, 1);
    if (at + size > limit && text.size() > limit) {
      return line + fmt::format("... ({} bytes)", with_thousands_separators(static_cast<int64_t>(text.size())));
    }
    if (character.size == 0) {
      line += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[at]));
    } else if (steers_a_terminal(character.code)) {
      line += escape(character.code);
    } else {
      line += text.substr(at, size);
    }
    at += size;
  }
  return line;
}

}  // namespace titanium
