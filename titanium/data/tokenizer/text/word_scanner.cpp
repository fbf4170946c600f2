#include "titanium/data/tokenizer/text/word_scanner.h"

#include <utf8proc.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "titanium/data/tokenizer/text/unicode.h"
#include "titanium/data/tokenizer/text/unicode_tables.h"

namespace titanium::data {
namespace {

// Every character has one of these; what is asked for may be several.
enum Class : uint8_t {
  kCapital = 1,      // Lu, Lt
  kSmall = 2,        // Ll
  kOtherLetter = 4,  // Lm, Lo
  kMark = 8,         // M
  kNumber = 16,      // N
  kSpace = 32,       // White_Space
  kSign = 64,        // all else
};
using Classes = uint8_t;
constexpr Classes kLetter = kCapital | kSmall | kOtherLetter;
constexpr Classes kCaseless = kOtherLetter | kMark;  // are capital and small
constexpr Classes kOther = kMark | kSign;            // neither letters nor numbers nor white space

// Nothing from here on is a letter, a number or white space, and these are the marks.
constexpr char32_t kTableEnd = 0x32400, kFirstMark = 0xE0100, kLastMark = 0xE01EF;

Class class_of_category(const char* category) {
  switch (category[0]) {
    case 'L':
      return category[1] == 'u' || category[1] == 't' ? kCapital : category[1] == 'l' ? kSmall : kOtherLetter;
    case 'M':
      return kMark;
    case 'N':
      return kNumber;
    default:
      return kSign;
  }
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
  bool is(Classes wanted) const { return (class_ & wanted) != 0; }
  bool is_line_break() const { return !at_end() && (text_[at_] == '\n' || text_[at_] == '\r'); }
  bool is_slash() const { return !at_end() && text_[at_] == '/'; }

  void next() {
    at_ += length_;
    look();
  }
  void skip(Classes wanted) {
    while (is(wanted)) next();
  }

 private:
  void look() {
    class_ = 0;
    if (at_end()) return;
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte < 0x80) {
      length_ = 1;
      class_ = table_[byte];
      return;
    }
    length_ = utf8_length(text_[at_]);
    const char32_t c = first_code_point(text_.substr(at_));
    const bool is_late_mark = c >= kFirstMark && c <= kLastMark;
    class_ = c < kTableEnd ? table_[c] : static_cast<Classes>(is_late_mark ? kMark : kSign);
  }

  std::string_view text_;
  size_t at_;
  const uint8_t* table_;
  size_t length_ = 0;
  Classes class_ = 0;  // at the end: none
};

// UPPER*LOWER+. As long as possible; when no small letter follows, the last character that is both is the small one.
size_t small_end(Cursor cursor) {
  size_t after_caseless = 0;
  while (cursor.is(kCapital | kCaseless)) {
    const bool caseless = cursor.is(kCaseless);
    cursor.next();
    if (caseless) after_caseless = cursor.at();
  }
  if (!cursor.is(kSmall)) return after_caseless;
  cursor.skip(kSmall | kCaseless);
  return cursor.at();
}

// UPPER+LOWER* where UPPER*LOWER+ is not: capital letters alone.
size_t capital_end(Cursor cursor) {
  if (!cursor.is(kCapital)) return 0;
  cursor.skip(kCapital);
  return cursor.at();
}

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
  const std::string contraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))", before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const auto by_case = [&](const std::string& after) {
    return before + upper + "*" + lower + "+" + after + "|" + before + upper + "+" + lower + "*" + after + "|";
  };
  const std::pair<Words, std::string> words[] = {{Words::kOfLetters, contraction + "|" + before + R"(\p{L}+|)"},
                                                 {Words::kByCase, by_case("")},
                                                 {Words::kByCaseWithContractions, by_case(contraction + "?")}};
  for (const auto& [kind, spelled] : words) {
    const std::string signs = kind == Words::kOfLetters ? R"([\r\n]*)" : R"([\r\n/]*)";
    for (const auto& [digits, count] : {std::pair{1, ""}, {3, "{1,3}"}}) {
      std::string whole = spelled + R"(\p{N})";
      whole.append(count).append(R"(| ?[^\s\p{L}\p{N}]+)").append(signs).append(R"(|\s*[\r\n]+|\s+(?!\S)|\s+)");
      if (pattern == whole) return WordScanner(kind, digits);
    }
  }
  return std::nullopt;
}

size_t WordScanner::cased_end(std::string_view text, size_t begin) const {
  const Cursor first(text, begin);
  Cursor second = first;
  second.next();
  // Any character but a letter, a number or a line break may stand before the word.
  const bool joins = first.is(kMark | kSpace | kSign) && !first.is_line_break();
  size_t end = joins ? small_end(second) : 0;
  if (end == 0) end = small_end(first);
  if (end == 0 && joins) end = capital_end(second);
  if (end == 0) end = capital_end(first);
  if (end == 0 || words_ == Words::kByCase || end == text.size() || text[end] != '\'') return end;
  return end + contraction(text.substr(end));
}

size_t WordScanner::word_end(std::string_view text, size_t begin) const {
  const bool by_case = words_ != Words::kOfLetters;
  if (!by_case && text[begin] == '\'') {
    if (const size_t length = contraction(text.substr(begin))) return begin + length;
  }
  Cursor cursor(text, begin);
  if (cursor.is(kNumber)) {
    for (int i = 0; i < digits_ && cursor.is(kNumber); ++i) cursor.next();
    return cursor.at();
  }
  if (by_case) {
    if (const size_t end = cased_end(text, begin)) return end;
  }
  const bool is_line_break = cursor.is_line_break(), is_space = cursor.is(kSpace);
  if (!cursor.is(kLetter)) cursor.next();
  if (!by_case && !is_line_break && cursor.is(kLetter)) {
    cursor.skip(kLetter);
    return cursor.at();
  }
  if (is_space && !(text[begin] == ' ' && cursor.is(kOther))) return space_end(text, begin);
  cursor.skip(kOther);
  while (cursor.is_line_break() || (by_case && cursor.is_slash())) cursor.next();
  return cursor.at();
}

}  // namespace titanium::data
