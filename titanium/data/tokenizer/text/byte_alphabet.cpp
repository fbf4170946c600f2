#include "titanium/data/tokenizer/text/byte_alphabet.h"

#include <array>

#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr int kFirstStandIn = 0x100;
constexpr int kCodePoints = kFirstStandIn + 68;  // 68 bytes are not printable

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, kCodePoints> bytes;  // -1: no byte

  Alphabet() {
    bytes.fill(-1);
    int stand_in = kFirstStandIn;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const int code_point = printable ? byte : stand_in++;
      append_utf8(characters[static_cast<size_t>(byte)], static_cast<char32_t>(code_point));
      bytes[static_cast<size_t>(code_point)] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_to_character(unsigned char byte) { return alphabet().characters[byte]; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string token;
  for (const char c : bytes) token += byte_to_character(static_cast<unsigned char>(c));
  return token;
}

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const char32_t code_point = first_code_point(token);
    const int byte = code_point < kCodePoints ? alphabet().bytes[code_point] : -1;
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    token.remove_prefix(utf8_length(token[0]));
  }
  return bytes;
}

}  // namespace titanium::data
