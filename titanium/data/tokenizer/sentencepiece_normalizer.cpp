#include "titanium/data/tokenizer/sentencepiece_normalizer.h"

#include "titanium/base/text/base64.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {

SentencePieceNormalizer::SentencePieceNormalizer(const Json& json)
    : dummy_prefix_(flag(json, "add_dummy_prefix", true)),
      one_space_(flag(json, "remove_extra_whitespaces", true)),
      mark_spaces_(flag(json, "escape_whitespaces", true)),
      space_is_suffix_(flag(json, "treat_whitespace_as_suffix", false)) {
  const auto compiled = from_base64(text_field(json, "charsmap"));
  TI_CHECK(compiled, "the normaliser's \"charsmap\" is not base64.");
  rules_ = Charsmap(*compiled);
  for (const Json& text : list_field(json, "protected")) protected_texts_.push_back(text.get<std::string>());
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (const std::string& text : protected_texts_) entries.emplace_back(text, 0);
  protected_ = PieceTrie(std::move(entries));
}

std::pair<std::string_view, size_t> SentencePieceNormalizer::normalize_prefix(std::string_view text) const {
  if (const size_t length = protected_.longest_prefix(text)) return {text.substr(0, length), length};
  const auto replaced = rules_.replace_prefix(text);
  if (replaced.second > 0) return replaced;
  const size_t length = utf8_length(text[0]);
  return {text.substr(0, length), length};
}

void SentencePieceNormalizer::append(std::string& out, std::string_view normalized) const {
  for (const char c : normalized) {
    if (c == ' ' && mark_spaces_) {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
}

std::string SentencePieceNormalizer::apply(std::string_view text) const {
  std::string out;
  while (one_space_ && !text.empty()) {
    const auto [normalized, length] = normalize_prefix(text);
    if (normalized != " ") break;
    text.remove_prefix(length);
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 4);
  if (dummy_prefix_ && !space_is_suffix_) append(out, " ");
  bool after_space = one_space_;
  while (!text.empty()) {
    auto [normalized, length] = normalize_prefix(text);
    text.remove_prefix(length);
    while (after_space && normalized.starts_with(' ')) normalized.remove_prefix(1);
    if (normalized.empty()) continue;
    append(out, normalized);
    after_space = one_space_ && normalized.ends_with(' ');
  }
  const std::string_view space = mark_spaces_ ? kSpaceMark : " ";
  while (one_space_ && out.ends_with(space)) out.resize(out.size() - space.size());
  if (dummy_prefix_ && space_is_suffix_) append(out, " ");
  return out;
}

}  // namespace titanium::data
