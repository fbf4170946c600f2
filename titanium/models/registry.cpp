#include "titanium/models/registry.h"

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/checkpoint/expanded_weights.h"
#include "titanium/models/deepseek_v3/spec.h"
#include "titanium/models/flux/spec.h"
#include "titanium/models/gpt_oss/spec.h"
#include "titanium/models/llama3/spec.h"
#include "titanium/models/llama4/spec.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/qwen3/spec.h"

namespace titanium::models {
namespace {

const std::vector<ModelSpec>& models() {
  static const std::vector<ModelSpec> all = {
      llama3::llama2_spec(), llama3::llama3_spec(), qwen3::spec(), deepseek_v3::spec(),
      gpt_oss::spec(),       llama4::spec(),        flux::spec(),
  };
  return all;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& names) {
  const auto nearest = nearest_name(name, names);
  return fmt::format("{}There are: {}.", nearest ? fmt::format("Did you mean \"{}\"? ", *nearest) : "",
                     fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelSpec& spec : models()) names.push_back(spec.name);
  return names;
}

std::string owner_at_hub(const std::string& repository) {
  for (const ModelSpec& spec : models()) {
    for (const Publisher& publisher : spec.publishers) {
      if (repository.starts_with(publisher.prefix)) return publisher.owner;
    }
  }
  return "";
}

const ModelSpec& find_model(const std::string& name) {
  for (const ModelSpec& spec : models()) {
    if (spec.name == name) return spec;
  }
  throw UsageError(
      fmt::format("model.name = \"{}\" is not a model of this build. {}", name, did_you_mean(name, model_names())));
}

std::unique_ptr<Model> build_model(const JobConfig& config, std::optional<int64_t> max_seq_len) {
  return build_model(find_model(config.model.name), config, max_seq_len);
}

std::unique_ptr<Model> build_model(const ModelSpec& spec, const JobConfig& config, std::optional<int64_t> max_seq_len) {
  const std::string& flavor = config.model.flavor;
  if (flavor != "auto" && std::ranges::find(spec.flavors, flavor) == spec.flavors.end()) {
    throw UsageError(
        fmt::format("model.flavor = \"{}\" is not a flavor of {}. {} \"auto\" reads the sizes from config.json in "
                    "model.hf_assets_path.",
                    flavor, spec.name, did_you_mean(flavor, spec.flavors)));
  }
  return spec.build(config.model, max_seq_len);
}

std::optional<std::string> name_of_model_in(const std::filesystem::path& folder) {
  if (!std::filesystem::is_regular_file(folder / "config.json")) return std::nullopt;
  nlohmann::json json;
  try {
    json = parse_json(read_file(folder / "config.json", "model description"));
  } catch (const JsonError&) {
    return std::nullopt;
  }
  if (!json.is_object() || !json.contains("model_type") || !json["model_type"].is_string()) return std::nullopt;
  const auto type = json["model_type"].get<std::string>();
  std::optional<std::string> name;
  for (const ModelSpec& spec : models()) {
    if (std::ranges::count(spec.hugging_face_types, type) > 0) name = spec.name;
  }
  return name;
}

void load_hugging_face_weights(Model& model, const std::filesystem::path& path, bool expand_quantised) {
  const auto source = checkpoint::open_safetensors(path);
  if (const auto quantised = checkpoint::find_quantised(*source); quantised && !expand_quantised) {
    throw UsageError(
        fmt::format("{} holds quantised weights, such as \"{}\". Set checkpoint.initial_load_in_hf_quantized = true to "
                    "expand them.",
                    path.string(), *quantised));
  }
  load_weights(model, *source);
}

}  // namespace titanium::models
