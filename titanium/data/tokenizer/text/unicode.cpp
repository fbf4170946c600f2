#include "titanium/data/tokenizer/text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/data/tokenizer/text/unicode_tables.h"

namespace titanium::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the valid character at `at`, or 0; then `invalid` is the length of the maximal part to replace.
size_t valid_character(std::string_view text, size_t at, size_t& invalid) {
  const auto byte = [&](size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  invalid = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = utf8_length(text[at]);
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(at + 1) < low || byte(at + 1) > high) return 0;
  for (invalid = 2; invalid < length; ++invalid) {
    if ((byte(at + invalid) & 0xC0) != 0x80) return 0;
  }
  return length;
}

size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & kHighBits) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

bool is_left_in_place(char32_t code_point) {
  for (const CodePointRange& range : kNormalisedSinceUnicode10) {
    if (code_point <= range.last) return code_point >= range.first;
  }
  return false;
}

void append_form(std::string& out, std::string_view text, int form) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  TI_CHECK(length >= 0, "normalising text failed: {}.", utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
}

std::string to_form(std::string_view text, int form) {
  if (skip_ascii(text, 0) == text.size()) return std::string(text);
  std::string out;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text[at]);
    if (length > 1 && is_left_in_place(first_code_point(text.substr(at)))) {
      append_form(out, text.substr(start, at - start), form);
      out.append(text, at, length);
      start = at + length;
    }
    at += length;
  }
  append_form(out, text.substr(start), form);
  return out;
}

}  // namespace

char32_t first_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  switch (utf8_length(text[0])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

void append_utf8(std::string& text, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::optional<std::string> replace_invalid_utf8(std::string_view text) {
  std::optional<std::string> repaired;
  size_t copied = 0;
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    size_t invalid = 0;
    if (const size_t length = valid_character(text, at, invalid)) {
      at += length;
      continue;
    }
    if (!repaired) repaired.emplace();
    repaired->append(text, copied, at - copied).append(kReplacement);
    at += invalid;
    copied = at;
  }
  if (repaired) repaired->append(text, copied);
  return repaired;
}

size_t begin_of_last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::string to_nfc(std::string_view text) { return to_form(text, UTF8PROC_COMPOSE); }
std::string to_nfd(std::string_view text) { return to_form(text, UTF8PROC_DECOMPOSE); }
std::string to_nfkc(std::string_view text) { return to_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT); }
std::string to_nfkd(std::string_view text) { return to_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT); }

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char32_t c = first_code_point(text.substr(at));
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    if (c == 0x130) append_utf8(out, 0x307);  // the only character with two in lower case
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string ranges_added_to_category(std::string_view category) {
  std::string ranges;
  for (const CategoryRange& range : kAddedAfterUnicode14) {
    if (std::string_view(range.category).starts_with(category)) {
      ranges += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", range.first, range.last);
    }
  }
  return ranges;
}

}  // namespace titanium::data
