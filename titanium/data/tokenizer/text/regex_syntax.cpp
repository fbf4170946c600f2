#include <cctype>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/data/tokenizer/text/regex.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs", "Cn"};

// Oniguruma's \w, but not its [\w], counts these six as word characters beside what Unicode says.
constexpr std::string_view kOnigurumaWordExtras = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

bool compiles(const std::string& pattern) {
  try {
    [[maybe_unused]] const Regex compiled(pattern);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string category_members(std::string_view category) {
  return fmt::format("\\p{{{}}}{}", category, ranges_added_to_category(category));
}

std::string word_members(bool in_class) {
  std::string members = fmt::format("\\p{{Alphabetic}}{}", in_class ? "" : kOnigurumaWordExtras);
  for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) {
    // Nl is alphabetic already; only its additions are missing.
    members += std::string_view(category) == "Nl" ? ranges_added_to_category(category) : category_members(category);
  }
  return members;
}

// What stands between the brackets of a class that means \p{name}.
std::string property_members(std::string_view name) {
  if (name.size() <= 2) {
    for (const std::string_view category : kCategories) {
      if (name.size() == category.size() && std::equal(name.begin(), name.end(), category.begin(), [](char a, char b) {
            return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
          })) {
        return category_members(category);
      }
    }
  }
  std::string script = fmt::format("\\p{{sc:{}}}", name);
  if (compiles(script)) return script;
  std::string property = fmt::format("\\p{{{}}}", name);
  TI_CHECK(compiles(property), "the regular expression names an unknown character property \\p{{{}}}.",
           printable(name));
  return property;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else {
        outside_class(c);
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  [[noreturn]] void refuse(std::string_view construct) const {
    throw Error(fmt::format("the regular expression {} uses {} at character {}, which is not supported.",
                            printable(pattern_), printable(construct), at_));
  }

  void outside_class(char c) {
    if (c == '[') {
      copy(next_is("[^") ? 2 : 1);
      if (next_is("]")) refuse("an empty character class");
      in_class_ = true;
    } else if (next_is("(?")) {
      group();
    } else if (c == '{') {
      braces();
    } else {
      copy(1);
    }
  }

  void inside_class(char c) {
    if (c == '[') refuse("a class inside a class");
    if (next_is("&&")) refuse("an intersection of classes");
    in_class_ = c != ']';
    copy(1);
  }

  void group() {
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (next_is(known)) return copy(known.size());
    }
    if (next_is("(?i)") && at_ == 0) return copy(4);
    refuse(fmt::format("the group '{}'", pattern_.substr(at_, 4)));
  }

  // A quantifier in braces. After one, Ruby reads '+' and (after a single number) '?' as quantifiers of their own.
  void braces() {
    const size_t close = pattern_.find('}', at_);
    const std::string_view body = close == std::string_view::npos ? "" : pattern_.substr(at_ + 1, close - at_ - 1);
    if (body.empty() || body.find_first_not_of("0123456789,") != std::string_view::npos || body == ",") return copy(1);
    out_ += body.front() == ',' ? fmt::format("{{0{}}}", body) : fmt::format("{{{}}}", body);
    at_ = close + 1;
    if (next_is("+")) refuse("'+' after '}'");
    if (next_is("?") && body.find(',') == std::string_view::npos) refuse("'?' after '{n}'");
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at its end");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 'p':
      case 'P':
        return property(c == 'P');
      case 's':
      case 'S':
        out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
        break;
      case 'd':
      case 'D':
        members(category_members("Nd"), c == 'D');
        break;
      case 'w':
      case 'W':
        members(word_members(in_class_), c == 'W');
        break;
      case 'h':
      case 'H':
        members("0-9A-Fa-f", c == 'H');
        break;
      case 'u':
        if (pattern_.find_first_not_of("0123456789abcdefABCDEF", at_ + 2) < at_ + 6 || at_ + 6 > pattern_.size()) {
          refuse("\\u without four hexadecimal digits");
        }
        out_ += fmt::format("\\x{{{}}}", pattern_.substr(at_ + 2, 4));
        at_ += 4;
        break;
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("nrtfveaxAzZ", c)) {
          refuse(fmt::format("\\{}", c));
        }
        return copy(2);
    }
    at_ += 2;
  }

  void property(bool negated) {
    const size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == std::string_view::npos) {
      refuse("\\p without a name in braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    members(property_members(name), negated);
    at_ = close + 1;
  }

  void members(const std::string& list, bool negated) {
    if (!in_class_) {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", list);
      return;
    }
    if (negated) refuse("a negated property inside a class");
    out_ += list;
  }

  std::string_view pattern_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

std::string escape_for_pcre2(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte)) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace titanium::data
