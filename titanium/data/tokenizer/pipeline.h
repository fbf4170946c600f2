// All parts of a tokenizer.json, put together.
#pragma once

#include <filesystem>
#include <span>

#include "titanium/data/tokenizer/added_tokens.h"
#include "titanium/data/tokenizer/bpe.h"
#include "titanium/data/tokenizer/json_fields.h"
#include "titanium/data/tokenizer/post_processor.h"
#include "titanium/data/tokenizer/pre_tokenizer.h"

namespace titanium::data {

enum class Decoder { kJoinWithSpaces, kByteLevel };

// What Hugging Face calls a Tokenizer. Methods that are const are thread-safe.
class Pipeline {
 public:
  Pipeline(Normalizer normalizer, PreTokenizer pre_tokenizer, Bpe model, PostProcessor post_processor, Decoder decoder);

  void add_tokens(const std::vector<AddedToken>& tokens);

  std::vector<TokenId> encode(std::string_view text) const;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::optional<TokenId> token_to_id(std::string_view token) const;
  const std::string* id_to_token(TokenId id) const;  // null: no such id
  int64_t vocab_size() const;

 private:
  class Encoder;

  uint64_t number_;  // tells the word caches of several pipelines apart
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  AddedTokens added_;
};

// The content of a tokenizer.json. Throws Error when something is missing, wrong or not supported.
Pipeline parse_pipeline(const Json& json);

// The pipeline of a folder: see Tokenizer::load. Throws UsageError.
Pipeline load_pipeline(const std::filesystem::path& folder);

}  // namespace titanium::data
