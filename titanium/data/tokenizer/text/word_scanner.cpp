#include "titanium/data/tokenizer/text/word_scanner.h"

#include <utf8proc.h>

#include <cstdint>
#include <vector>

#include "titanium/data/tokenizer/text/unicode.h"
#include "titanium/data/tokenizer/text/unicode_tables.h"

namespace titanium::data {
namespace {

enum Class : uint8_t { kOther, kLetter, kNumber, kSpace };

constexpr char32_t kTableEnd = 0x32400;  // nothing above is a letter, a number or white space

Class class_of_category(const char* category) {
  return category[0] == 'L' ? kLetter : category[0] == 'N' ? kNumber : kOther;
}

const std::vector<uint8_t>& classes() {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> result(kTableEnd);
    for (char32_t c = 0; c < kTableEnd; ++c) {
      result[c] = is_white_space(c) ? kSpace : class_of_category(utf8proc_category_string(static_cast<int32_t>(c)));
    }
    for (const CategoryRange& range : kAddedAfterUnicode14) {
      for (uint32_t c = range.first; c <= range.last && c < kTableEnd; ++c)
        result[c] = class_of_category(range.category);
    }
    return result;
  }();
  return table;
}

// A text with a place in it.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at) : text_(text), at_(at), table_(classes().data()) { look(); }

  bool at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  bool is(Class wanted) const { return !at_end() && class_ == wanted; }
  bool is_line_break() const { return !at_end() && (text_[at_] == '\n' || text_[at_] == '\r'); }

  void next() {
    at_ += length_;
    look();
  }
  void skip(Class wanted) {
    while (is(wanted)) next();
  }

 private:
  void look() {
    if (at_end()) return;
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte < 0x80) {
      length_ = 1;
      class_ = static_cast<Class>(table_[byte]);
      return;
    }
    length_ = utf8_length(text_[at_]);
    const char32_t c = first_code_point(text_.substr(at_));
    class_ = c < kTableEnd ? static_cast<Class>(table_[c]) : kOther;
  }

  std::string_view text_;
  size_t at_;
  const uint8_t* table_;
  size_t length_ = 0;
  Class class_ = kOther;
};

// The length of 's, 't, 're, 've, 'm, 'll or 'd in either case at the front of `text`, else 0.
size_t contraction(std::string_view text) {
  const auto letter = [&](size_t i) { return i < text.size() ? static_cast<char>(text[i] | 0x20) : '\0'; };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return text.substr(1).starts_with("\xC5\xBF") ? 3 : 0;  // U+017F is an s without regard to case
  }
}

// White space up to its last line break, else all but the last character when a word follows.
size_t space_end(std::string_view text, size_t begin) {
  size_t after_break = 0, last = begin;
  Cursor cursor(text, begin);
  while (cursor.is(kSpace)) {
    last = cursor.at();
    const bool is_break = cursor.is_line_break();
    cursor.next();
    if (is_break) after_break = cursor.at();
  }
  if (after_break > 0) return after_break;
  return cursor.at_end() || last == begin ? cursor.at() : last;
}

}  // namespace

std::optional<WordScanner> WordScanner::for_pattern(std::string_view pattern) {
  constexpr std::string_view kBegin = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  constexpr std::string_view kEnd = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (!pattern.starts_with(kBegin) || !pattern.ends_with(kEnd)) return std::nullopt;
  if (pattern.size() < kBegin.size() + kEnd.size()) return std::nullopt;
  const std::string_view digits = pattern.substr(kBegin.size(), pattern.size() - kBegin.size() - kEnd.size());
  if (digits.empty()) return WordScanner(1);
  if (digits == "{1,3}") return WordScanner(3);
  return std::nullopt;
}

size_t WordScanner::word_end(std::string_view text, size_t begin) const {
  if (text[begin] == '\'') {
    if (const size_t length = contraction(text.substr(begin))) return begin + length;
  }
  Cursor cursor(text, begin);
  if (cursor.is(kNumber)) {
    for (int i = 0; i < digits_ && cursor.is(kNumber); ++i) cursor.next();
    return cursor.at();
  }
  const bool is_line_break = cursor.is_line_break(), is_space = cursor.is(kSpace);
  if (!cursor.is(kLetter)) cursor.next();
  if (!is_line_break && cursor.is(kLetter)) {
    cursor.skip(kLetter);
    return cursor.at();
  }
  if (is_space && !(text[begin] == ' ' && cursor.is(kOther))) return space_end(text, begin);
  cursor.skip(kOther);
  while (cursor.is_line_break()) cursor.next();
  return cursor.at();
}

}  // namespace titanium::data
