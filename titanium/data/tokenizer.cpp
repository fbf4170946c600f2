#include "titanium/data/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "titanium/base/bundled.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/data/tokenizer/pipeline.h"
#include "titanium/remote/digest.h"
#include "titanium/remote/reading/local_copy.h"

namespace titanium::data {
namespace {

constexpr const char* kSpecialTokenKeys[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                             "sep_token", "cls_token", "mask_token"};

// tokenizer_config.json spells a token as a string or as an object with "content".
std::optional<std::string> token_text(const Json& config, const char* key) {
  const Json& token = field_or_null(config, key);
  if (token.is_null()) return std::nullopt;
  return token.is_object() ? text_field(token, "content") : text_field(config, key);
}

AddedToken parse_special_token(const Json& json) {
  if (json.is_string()) return {.content = json.get<std::string>(), .normalized = false, .special = true};
  return {.content = text_field(json, "content"),
          .single_word = flag(json, "single_word", false),
          .lstrip = flag(json, "lstrip", false),
          .rstrip = flag(json, "rstrip", false),
          .normalized = flag(json, "normalized", true),
          .special = true};
}

// Tokens that the model does not know get their ids in the order of the file, so the order of keys matters.
std::vector<AddedToken> parse_special_tokens(const nlohmann::ordered_json& ordered, const Json& config) {
  std::vector<AddedToken> tokens;
  for (const char* key : kSpecialTokenKeys) {
    if (token_text(config, key)) tokens.push_back(parse_special_token(config.at(key)));
  }
  const Json& numbered = field_or_null(config, "added_tokens_decoder");
  if (!numbered.is_object()) return tokens;
  for (const auto& [id, unused] : ordered.at("added_tokens_decoder").items()) {
    if (!field_or_null(numbered.at(id), "content").is_null()) tokens.push_back(parse_special_token(numbered.at(id)));
  }
  return tokens;
}

// Whether load() may look for a file of this name in a folder at an address.
bool is_tokenizer_file(const std::string& name) {
  for (const char* known : {"tokenizer.json", "tokenizer_config.json", "tekken.json", "tokenizer.model", "spiece.model",
                            "vocab.json", "vocab.txt", "merges.txt"}) {
    if (name == known) return true;
  }
  return name.ends_with(".tiktoken") && name.find('/') == std::string::npos;
}

// All files of a tokenizer are found in the same place.
std::filesystem::path local_tokenizer(const std::filesystem::path& given) {
  return remote::local_copy(bundled(given).string(), is_tokenizer_file);
}

}  // namespace

SpecialInText parse_special_in_text(std::string_view name) {
  if (name == "text") return SpecialInText::kText;
  if (name == "error") return SpecialInText::kError;
  TI_CHECK(name == "token", "special tokens in texts cannot become {}. Choose token, text or error.", printable(name));
  return SpecialInText::kToken;
}

std::string tokenizer_digest(const std::filesystem::path& given) {
  const std::filesystem::path path = local_tokenizer(given);
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (is_tokenizer_file(entry.path().filename().string())) files.push_back(entry.path());
    }
    std::ranges::sort(files);
  } else {
    files.push_back(path);
  }
  std::string digests;
  for (const auto& file : files)
    digests += fmt::format("{} {}\n", file.filename().string(), remote::sha256(read_file(file, "tokenizer")));
  return remote::to_hex(remote::sha256(digests)).substr(0, 32);
}

struct Tokenizer::Tables {
  Pipeline pipeline;
  SpecialInText special;
  std::optional<TokenId> bos = std::nullopt;
  std::optional<TokenId> eos = std::nullopt;
  std::optional<TokenId> pad = std::nullopt;
  bool pipeline_adds_bos = false;
  bool pipeline_adds_eos = false;
};

Tokenizer Tokenizer::load(const std::filesystem::path& given, SpecialInText special, bool ignore_lengths) {
  const std::filesystem::path path = local_tokenizer(given);
  LoadedPipeline loaded = load_pipeline(path, ignore_lengths);
  auto tables = std::make_shared<Tables>(Tables{.pipeline = std::move(loaded.pipeline), .special = special});
  Pipeline& pipeline = tables->pipeline;
  if (loaded.bos) tables->bos = pipeline.token_to_id(*loaded.bos);
  if (loaded.eos) tables->eos = pipeline.token_to_id(*loaded.eos);
  const std::filesystem::path file = path / "tokenizer_config.json";
  if (std::filesystem::exists(file)) {
    try {
      const auto ordered = parse_ordered_json(read_file(file, "tokenizer configuration"));
      const Json config = ordered;
      pipeline.add_tokens(parse_special_tokens(ordered, config));
      if (const auto bos = token_text(config, "bos_token")) tables->bos = pipeline.token_to_id(*bos);
      if (const auto eos = token_text(config, "eos_token")) tables->eos = pipeline.token_to_id(*eos);
      if (const auto pad = token_text(config, "pad_token")) tables->pad = pipeline.token_to_id(*pad);
      const bool split = flag(config, "split_special_tokens", false);
      if (split && special == SpecialInText::kToken) tables->special = SpecialInText::kText;
    } catch (const JsonError& error) {
      throw UsageError(fmt::format("{} {}. Fetch or write it again.", file.string(), error.what()));
    } catch (const Error& error) {
      throw UsageError(fmt::format("{}: {}", file.string(), error.what()));
    } catch (const Json::exception&) {
      throw UsageError(fmt::format("{}: a member is missing or of another type. Fetch it again.", file.string()));
    }
  }
  // What the post-processor adds shows on an empty text.
  const std::vector<TokenId> added = pipeline.encode("", tables->special);
  tables->pipeline_adds_bos = tables->bos && std::ranges::count(added, *tables->bos) > 0;
  tables->pipeline_adds_eos = tables->eos && std::ranges::count(added, *tables->eos) > 0;
  return Tokenizer(std::move(tables));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_bos, bool add_eos) const {
  std::vector<TokenId> ids = tables_->pipeline.encode(text, tables_->special);
  if (add_bos && tables_->bos && !tables_->pipeline_adds_bos) ids.insert(ids.begin(), *tables_->bos);
  if (add_eos && tables_->eos && !tables_->pipeline_adds_eos) ids.push_back(*tables_->eos);
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  return tables_->pipeline.decode(ids, skip_special_tokens);
}

std::optional<TokenId> Tokenizer::bos_id() const { return tables_->bos; }
std::optional<TokenId> Tokenizer::eos_id() const { return tables_->eos; }
std::optional<TokenId> Tokenizer::pad_id() const { return tables_->pad; }
int64_t Tokenizer::vocab_size() const { return tables_->pipeline.vocab_size(); }

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  return tables_->pipeline.token_to_id(token);
}

std::optional<std::string> Tokenizer::id_to_token(TokenId id) const {
  const auto token = tables_->pipeline.id_to_token(id);
  return token ? std::optional(std::string(*token)) : std::nullopt;
}

}  // namespace titanium::data
