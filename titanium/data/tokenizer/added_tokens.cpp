#include "titanium/data/tokenizer/added_tokens.h"

#include <algorithm>

#include "titanium/data/tokenizer/text/regex.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

bool is_word_character(std::string_view character) {
  static const Regex word(oniguruma_to_pcre2(R"([\p{Alphabetic}\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\u200C\u200D])"));
  Regex::Match match;
  return word.find(character, 0, match);
}

bool stands_alone(std::string_view text, const TextPart& match) {
  const std::string_view before = text.substr(0, match.begin);
  const std::string_view after = text.substr(match.end);
  const bool joins_left = !before.empty() && is_word_character(before.substr(begin_of_last_character(before)));
  const bool joins_right = !after.empty() && is_word_character(after.substr(0, utf8_length(after[0])));
  return !joins_left && !joins_right;
}

size_t without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const size_t last = begin_of_last_character(text);
    if (!is_white_space(first_code_point(text.substr(last)))) break;
    text = text.substr(0, last);
  }
  return text.size();
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_white_space(first_code_point(text.substr(at)))) at += utf8_length(text[at]);
  return at;
}

}  // namespace

void AddedTokens::Patterns::add(std::string_view pattern, TokenId id) {
  uint32_t node = 0;
  for (const char c : pattern) {
    const auto [edge, is_fresh] =
        edges_.try_emplace(uint64_t{node} << 8 | static_cast<unsigned char>(c), static_cast<uint32_t>(nodes_.size()));
    if (is_fresh) nodes_.push_back(-1);
    node = edge->second;
  }
  if (!pattern.empty()) begins_[static_cast<unsigned char>(pattern[0])] = true;
  nodes_[node] = id;
}

bool AddedTokens::Patterns::find(std::string_view text, size_t from, TextPart& match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    match.id = -1;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (nodes_[node] >= 0) match = {nodes_[node], begin, at + 1};
    }
    if (match.id >= 0) return true;
  }
  return false;
}

void AddedTokens::add(const std::vector<AddedToken>& tokens, const Vocabulary& model, const Normalizer& normalizer) {
  const auto model_size = static_cast<TokenId>(model.size());
  TokenId next_id = tokens_.empty() ? model_size : std::max(model_size, tokens_.rbegin()->first + 1);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    auto known = id(token.content);
    if (known && tokens_.at(*known) == token) continue;
    if (!known) known = model.id(token.content);
    const TokenId token_id = known ? *known : next_id++;
    ids_[token.content] = token_id;
    texts_[token_id] = token.normalized && !token.literal ? normalizer.apply(token.content) : token.content;
    if (token.special) special_.insert(token.content);
    tokens_[token_id] = token;
  }
  rebuild_patterns();
}

void AddedTokens::rebuild_patterns() {
  patterns_[false] = patterns_[true] = {};
  for (const auto& [id, token] : tokens_) {
    if (token.in_text) patterns_[token.normalized].add(texts_.at(id), id);
  }
}

void AddedTokens::split(std::string_view text, bool normalized, SpecialInText special,
                        std::vector<TextPart>& parts) const {
  size_t done = 0;
  TextPart match{};
  for (size_t from = 0; !empty(normalized) && patterns_[normalized].find(text, from, match);) {
    from = match.end;
    const AddedToken& token = tokens_.at(match.id);
    if (token.special && special == SpecialInText::kText) continue;
    TI_CHECK(!token.special || special != SpecialInText::kError,
             "the text holds the special token {} at byte {}. Take it out, or say what special tokens in texts become.",
             printable(token.content), match.begin);
    if (token.single_word && !stands_alone(text, match)) continue;
    if (token.lstrip) match.begin = std::max(done, without_trailing_space(text.substr(0, match.begin)));
    if (token.rstrip) match.end += leading_space(text.substr(match.end));
    if (done < match.begin) parts.push_back({-1, done, match.begin});
    parts.push_back(match);
    done = match.end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

std::optional<TokenId> AddedTokens::id(std::string_view content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* AddedTokens::text(TokenId id) const {
  const auto found = texts_.find(id);
  return found == texts_.end() ? nullptr : &found->second;
}

}  // namespace titanium::data
