// UTF-8 and Unicode as Hugging Face tokenizers sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace titanium::data {

// Bytes of the character that begins with `lead`, a byte of valid UTF-8 that is not a continuation.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at the front of `text`, which is valid UTF-8 and not empty.
char32_t first_code_point(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

// Nothing when `text` is valid UTF-8; else a copy in which every maximal invalid part is one U+FFFD, as Python's
// bytes.decode(errors="replace") makes it.
std::optional<std::string> replace_invalid_utf8(std::string_view text);

// Where the last character of `text` begins, which is valid UTF-8 and not empty.
size_t begin_of_last_character(std::string_view text);

// The normal forms of valid UTF-8.
std::string to_nfc(std::string_view text);
std::string to_nfd(std::string_view text);
std::string to_nfkc(std::string_view text);
std::string to_nfkd(std::string_view text);

// Each character in lower case, as Rust's str::to_lowercase of a single character has it (no context).
std::string to_lower(std::string_view text);

// The Unicode property White_Space.
bool is_white_space(char32_t code_point);

// Ranges that Unicode 15 to 16 added to a general category ("L", "Lu", ...), spelled for the inside of a PCRE2 class.
std::string ranges_added_to_category(std::string_view category);

}  // namespace titanium::data
