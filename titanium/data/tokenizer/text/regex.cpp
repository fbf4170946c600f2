#include "titanium/data/tokenizer/text/regex.h"

#include <pcre2.h>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackLimit = 64 << 20;
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKib = 1 << 20;
constexpr size_t kFirstWindow = 1024, kWindowGrowth = 4;
constexpr size_t kMostEffort = 64;  // for each byte of the text

// What matching needs besides the pattern. One per thread, shared by all patterns: results are read at once.
struct Workspace {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr);

  Workspace() {
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

const pcre2_code* as_code(const std::shared_ptr<const void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

}  // namespace

Regex::Regex(const std::string& pattern) {
  int error = 0;
  size_t at = 0;
  // MULTILINE because ^ and $ are about lines in Ruby.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr);
  TI_CHECK(code != nullptr, "the regular expression {} is wrong at character {}: {}.", printable(pattern), at,
           message_of(error));
  code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p))); });
  compiled_to_machine_code_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
}

// PCRE2's answer.
int Regex::match_in(std::string_view subject, size_t from, uint32_t options, Match& match) const {
  thread_local Workspace workspace;
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (compiled_to_machine_code_) {
    found = pcre2_jit_match(as_code(code_), text, subject.size(), from, options, workspace.match, workspace.context);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(as_code(code_), text, subject.size(), from, options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        workspace.match, workspace.context);
  }
  TI_CHECK(found >= 0 || found == PCRE2_ERROR_NOMATCH || found == PCRE2_ERROR_PARTIAL,
           "the tokenizer's regular expression gives up on {} bytes of text: {}. Simplify it.", subject.size(),
           message_of(found));
  const size_t* offsets = pcre2_get_ovector_pointer(workspace.match);
  if (found >= 0) match = {offsets[0], offsets[1]};
  return found;
}

// Searches in a window that grows. A "hard partial" search says so when it has looked at the end of the window; a match
// that it finds without that is the one that it would find in all of the text.
bool Regex::find(std::string_view subject, size_t from, Match& match, Effort& effort) const {
  for (size_t window = kFirstWindow; window < subject.size() - from; window *= kWindowGrowth) {
    size_t end = from + window;
    while ((static_cast<unsigned char>(subject[end]) & 0xC0) == 0x80) --end;  // not inside a character
    if (match_in(subject.substr(0, end), from, PCRE2_PARTIAL_HARD, match) >= 0) return true;
    effort.bytes += window;
    TI_CHECK(effort.bytes <= kMostEffort * (subject.size() + kFirstWindow),
             "the tokenizer's regular expression looks through {} bytes of text again and again. Simplify it, so that "
             "it does not look far ahead for short words.",
             subject.size());
  }
  return match_in(subject, from, 0, match) >= 0;
}

Regex parse_pattern(const Json& pattern) {
  const bool is_regex = !field_or_null(pattern, "Regex").is_null();
  return Regex(is_regex ? oniguruma_to_pcre2(text_field(pattern, "Regex"))
                        : escape_for_pcre2(text_field(pattern, "String")));
}

std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content) {
  std::string out;
  size_t done = 0;
  Regex::Match match;
  Regex::Effort effort;
  for (size_t from = 0; from <= text.size() && pattern.find(text, from, match, effort);) {
    out.append(text, done, match.begin - done).append(content);
    done = match.end;
    from = match.end > match.begin   ? match.end
           : match.end < text.size() ? match.end + utf8_length(text[match.end])
                                     : text.size() + 1;
  }
  return out.append(text, done);
}

}  // namespace titanium::data
