// Published tokenizers: text to token ids and back, with the same ids as the libraries of their makers (Hugging Face
// tokenizers, tiktoken, SentencePiece).
//
// Supported: tokenizer.json of the families that we train, tiktoken's ranks, SentencePiece's models and Mistral's
// tekken. docs/tokenizer.md has the list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::data {

using TokenId = int32_t;

// What a special token that stands in a text becomes: the token, ordinary text, or an error.
enum class SpecialInText { kToken, kText, kError };

// "token", "text" or "error".
SpecialInText parse_special_in_text(std::string_view name);

// 32 hex digits of the content of all files that Tokenizer::load may read at `path`: the same for the same files,
// wherever they are. Throws as Tokenizer::load does where there are none.
std::string tokenizer_digest(const std::filesystem::path& path);

// Immutable: all methods are thread-safe and take no lock. Copies share one set of tables. Every thread keeps a cache
// of words of its own (at most a few MB).
class Tokenizer {
 public:
  // Reads from a folder the first of tokenizer.json, tekken.json, tokenizer.model (SentencePiece or tiktoken's ranks),
  // spiece.model, *.tiktoken, vocab.json or vocab.txt with merges.txt (GPT-2's splitting, or CLIP's where the
  // vocabulary is CLIP's), else the vocabulary alone (the whole text is one token); and tokenizer_config.json, where
  // there is one, for BOS, EOS and other special tokens. `path` may also be such a file itself, and may be an address
  // (remote/reading/local_copy.h). Throws UsageError when files are missing, broken or need something that is not
  // supported. Large ones are kept in a cache in the form that is read at once (tokenizer/files/parts_cache.h). A
  // tokenizer.json that cuts texts or fills them up is refused, unless `ignore_lengths`: then texts keep their lengths.
  static Tokenizer load(const std::filesystem::path& path, SpecialInText special = SpecialInText::kToken,
                        bool ignore_lengths = false);

  // The ids of `text`. BOS and EOS are added on request where they are known and the tokenizer's own post-processor
  // does not add them anyway. Invalid UTF-8 is read as U+FFFD. Throws Error when the vocabulary cannot express the
  // text, or when it holds a special token and must not.
  std::vector<TokenId> encode(std::string_view text, bool add_bos, bool add_eos) const;

  // The text of `ids`; ids without a token are left out, bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;
  std::optional<TokenId> pad_id() const;  // that tokenizer_config.json names
  int64_t vocab_size() const;             // with added tokens
  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(TokenId id) const;

 private:
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}

  std::shared_ptr<const Tables> tables_;
};

}  // namespace titanium::data
