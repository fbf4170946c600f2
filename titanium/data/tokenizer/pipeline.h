// All parts of a tokenizer, put together.
#pragma once

#include <filesystem>
#include <span>

#include "titanium/data/tokenizer/added_tokens.h"
#include "titanium/data/tokenizer/decoder.h"
#include "titanium/data/tokenizer/files/tokenizer_parts.h"
#include "titanium/data/tokenizer/model/model.h"
#include "titanium/data/tokenizer/normalizer.h"
#include "titanium/data/tokenizer/post_processor.h"
#include "titanium/data/tokenizer/pre_tokenizer.h"

namespace titanium::data {

// What Hugging Face calls a Tokenizer. Methods that are const are thread-safe.
class Pipeline {
 public:
  Pipeline(Normalizer normalizer, PreTokenizer pre_tokenizer, std::unique_ptr<const Model> model,
           PostProcessor post_processor, Decoder decoder);

  void add_tokens(const std::vector<AddedToken>& tokens);

  std::vector<TokenId> encode(std::string_view text, SpecialInText special) const;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(TokenId id) const;
  int64_t vocab_size() const;

 private:
  class Encoder;

  uint64_t number_;  // tells the word caches of several pipelines apart
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const Model> model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  AddedTokens added_;
};

// Takes the tables out of `parts`. Throws Error when something is missing, wrong or not supported.
Pipeline build_pipeline(TokenizerParts& parts);

struct LoadedPipeline {
  Pipeline pipeline;
  std::optional<std::string> bos;  // what the tokenizer's own file says; tokenizer_config.json is not read
  std::optional<std::string> eos;
};

// The pipeline of a folder or file: see Tokenizer::load. Throws UsageError.
LoadedPipeline load_pipeline(const std::filesystem::path& path, bool ignore_lengths = false);

}  // namespace titanium::data
