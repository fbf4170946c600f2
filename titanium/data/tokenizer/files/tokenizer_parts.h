// What every kind of tokenizer file is read into: the words of tokenizer.json for all small parts, and the tables of
// the model, which take most of the time to compute and can be kept in a cache.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <variant>

#include "titanium/data/tokenizer/files/json_fields.h"
#include "titanium/data/tokenizer/model/bpe.h"
#include "titanium/data/tokenizer/model/unigram.h"

namespace titanium::data {

struct TokenizerParts {
  // As in tokenizer.json, without the model's "vocab" and "merges". Beyond it: "bos_token" and "eos_token", where the
  // file says so, and what Normalizer, AddedToken and the model understand in addition.
  Json json;
  std::variant<BpeTables, UnigramTables> tables;
};

// The content of a tokenizer.json. Throws Error when something is missing, wrong or not supported.
TokenizerParts parts_of_json(Json json);

// tiktoken's file of ranks: a token in base64 and its rank on each line. Pattern and special tokens are not in the
// file; its number of ranks says whose it is. Throws Error when they are damaged or nobody's that we know.
TokenizerParts parts_of_ranks(std::string_view content);

// Mistral's tekken.json.
TokenizerParts parts_of_tekken(const Json& json);

// SentencePiece's model file: BPE or unigram, with its normaliser.
TokenizerParts parts_of_sentencepiece(std::string_view content);

// The options of a BPE model in words of tokenizer.json. Throws Error for those that are not supported.
BpeOptions parse_bpe_options(const Json& model, bool byte_level);

}  // namespace titanium::data
