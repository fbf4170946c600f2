#include "titanium/models/hugging_face_assets.h"

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"

namespace titanium::models {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "tokenizer.model",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "generation_config.json",
                                           "preprocessor_config.json"};

// Null when there is no such file.
Json read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return nullptr;
  const std::string text = read_file(path, "file");
  try {
    Json json = parse_json(text);
    TI_CHECK(json.is_object(), "{} is not a JSON object. Fetch it again, or remove it.", path.string());
    return json;
  } catch (const JsonError& error) {
    throw Error(fmt::format("{} {}. Fetch it again, or remove it.", path.string(), error.what()));
  }
}

// "<s>", or the same inside an object. Null when it is neither.
Json token_text(const Json& tokenizer_config, const char* key) {
  const Json token = tokenizer_config.is_object() ? tokenizer_config.value(key, Json()) : Json();
  const Json text = token.is_object() ? token.value("content", Json()) : token;
  return text.is_string() ? text : Json();
}

// The id of tokenizer_config.json's "bos_token" or "eos_token"; null where the tokenizer has none.
Json token_id(const fs::path& assets, const char* key) {
  const Json text = token_text(read_object(assets / "tokenizer_config.json"), key);
  const Json tokenizer = text.is_null() ? Json() : read_object(assets / "tokenizer.json");
  if (tokenizer.is_null() || !tokenizer.contains("added_tokens")) return nullptr;
  for (const Json& token : tokenizer["added_tokens"]) {
    if (token.is_object() && token.value("content", Json()) == text) return token.value("id", Json());
  }
  return nullptr;
}

}  // namespace

std::string complete_config_json(const std::string& config, const fs::path& assets) {
  auto json = parse_ordered_json(config);
  const Json theirs = read_object(assets / "config.json");
  const bool same_kind = theirs.is_object() && theirs.value("model_type", Json()) == Json(json["model_type"]);
  for (const char* name : {"bos_token", "eos_token", "pad_token"}) {
    const std::string key = fmt::format("{}_id", name);
    json[key] = same_kind && theirs.contains(key) ? theirs[key] : token_id(assets, name);
  }
  const char* positions = "max_position_embeddings";
  if (same_kind && theirs.contains(positions) && theirs[positions].is_number_integer()) {
    json[positions] = std::max(json[positions].get<int64_t>(), theirs[positions].get<int64_t>());
  }
  return json.dump(2) + "\n";
}

std::vector<fs::path> tokenizer_files(const fs::path& assets) {
  std::vector<fs::path> files;
  for (const char* name : kTokenizerFiles) {
    std::error_code ignored;
    if (fs::is_regular_file(assets / name, ignored)) files.push_back(assets / name);
  }
  return files;
}

void copy_tokenizer_files(const fs::path& assets, const fs::path& folder) {
  for (const fs::path& file : tokenizer_files(assets)) {
    std::error_code error;
    if (fs::equivalent(assets, folder, error)) continue;
    fs::copy_file(file, folder / file.filename(), fs::copy_options::overwrite_existing, error);
    TI_CHECK(!error, "{} cannot be copied to {}: {}. Check permissions and free space.", file.string(), folder.string(),
             error.message());
  }
}

}  // namespace titanium::models
