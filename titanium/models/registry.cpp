#include "titanium/models/registry.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/base/nearest_name.h"
#include "titanium/models/llama3/model.h"
#include "titanium/models/model_weights.h"

namespace titanium::models {
namespace {

struct ModelSpec {
  std::string_view name;
  std::vector<std::string> (*flavors)();
  std::unique_ptr<LanguageModel> (*build)(const config::Model& options, std::optional<int64_t> max_seq_len);
};

template <const std::map<std::string, llama3::Args>& (*kFlavors)()>
std::vector<std::string> flavor_names() {
  std::vector<std::string> names;
  for (const auto& [name, args] : kFlavors()) names.push_back(name);
  return names;
}

llama3::Args args_from_folder(const std::filesystem::path& folder) {
  const bool metas =
      !std::filesystem::exists(folder / "config.json") && std::filesystem::exists(folder / "params.json");
  return metas ? llama3::args_from_params_json(folder / "params.json")
               : llama3::args_from_config_json(folder / "config.json");
}

template <const std::map<std::string, llama3::Args>& (*kFlavors)()>
std::unique_ptr<LanguageModel> build_llama(const config::Model& options, std::optional<int64_t> max_seq_len) {
  llama3::Args args =
      options.flavor == "auto" ? args_from_folder(options.hf_assets_path) : kFlavors().at(options.flavor);
  if (max_seq_len && *max_seq_len > args.max_seq_len) {
    log_warning("training.seq_len = {} is longer than the {} positions that {} {} was made for", *max_seq_len,
                args.max_seq_len, options.name, options.flavor);
  }
  args.max_seq_len = max_seq_len.value_or(args.max_seq_len);
  args.attn_type = options.attn_type.value_or(args.attn_type);
  // flex and varlen are torchtitan's names for attention inside documents; the path is chosen by device and dtype.
  const std::string mask =
      options.attn_type ? (args.attn_type == "sdpa" ? "causal" : "block_causal") : args.attn_mask_type;
  args.attn_mask_type = options.attn_mask_type.value_or(mask);
  if (args.attn_type == "sdpa" && args.attn_mask_type == "block_causal") {
    throw UsageError(
        "model.attn_mask_type = \"block_causal\" needs model.attn_type = \"flex\" or \"varlen\", not \"sdpa\".");
  }
  return std::make_unique<llama3::Llama3>(args);
}

const std::array kModels = {
    ModelSpec{"llama2", flavor_names<llama3::llama2_flavors>, build_llama<llama3::llama2_flavors>},
    ModelSpec{"llama3", flavor_names<llama3::llama3_flavors>, build_llama<llama3::llama3_flavors>},
};

std::string did_you_mean(const std::string& name, const std::vector<std::string>& names) {
  const auto nearest = nearest_name(name, names);
  return fmt::format("{}There are: {}.", nearest ? fmt::format("Did you mean \"{}\"? ", *nearest) : "",
                     fmt::join(names, ", "));
}

const ModelSpec& find_model(const std::string& name) {
  for (const ModelSpec& spec : kModels) {
    if (spec.name == name) return spec;
  }
  throw UsageError(
      fmt::format("model.name = \"{}\" is not a model of this build. {}", name, did_you_mean(name, model_names())));
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelSpec& spec : kModels) names.emplace_back(spec.name);
  return names;
}

std::unique_ptr<LanguageModel> build_model(const JobConfig& config, std::optional<int64_t> max_seq_len) {
  const ModelSpec& spec = find_model(config.model.name);
  const std::vector<std::string> flavors = spec.flavors();
  if (config.model.flavor != "auto" &&
      std::find(flavors.begin(), flavors.end(), config.model.flavor) == flavors.end()) {
    throw UsageError(
        fmt::format("model.flavor = \"{}\" is not a flavor of {}. {} \"auto\" reads the sizes from config.json in "
                    "model.hf_assets_path.",
                    config.model.flavor, config.model.name, did_you_mean(config.model.flavor, flavors)));
  }
  return spec.build(config.model, max_seq_len);
}

void load_hugging_face_weights(LanguageModel& model, const std::filesystem::path& path) {
  load_weights(model, *checkpoint::open_safetensors(path));
}

}  // namespace titanium::models
