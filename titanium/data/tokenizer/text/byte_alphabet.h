// The alphabet of byte-level tokenizers: every byte has a printable character, so that vocabularies are readable text.
// The printable bytes of Latin-1 are themselves; the others, in order, are U+0100, U+0101, ... (a space is "Ġ").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace titanium::data {

// The character of a byte, as UTF-8.
std::string_view byte_to_character(unsigned char byte);

// `bytes` spelled in the alphabet.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that `token` (valid UTF-8) spells, or nothing when a character is outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view token);

}  // namespace titanium::data
