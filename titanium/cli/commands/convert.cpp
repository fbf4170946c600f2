// titanium convert: writes weights in another format.
#include <ranges>

#include "titanium/base/error.h"
#include "titanium/cli/command_line.h"
#include "titanium/config/job_config.h"
#include "titanium/models/convert_weights.h"
#include "titanium/models/registry.h"
#include "titanium/remote/transport/url.h"

namespace titanium::cli {
namespace {

namespace fs = std::filesystem;
using models::WeightsFormat;

struct Options {
  std::string source, target, to, model_name, model_flavor, export_dtype, assets;
  bool force = false;
};

const std::map<std::string, WeightsFormat> kFormats = {{"bfl", WeightsFormat::kOtherNames},
                                                       {"dcp", WeightsFormat::kDcp},
                                                       {"hf", WeightsFormat::kHuggingFace},
                                                       {"torch", WeightsFormat::kTorch}};

// The last is that of a pipeline of diffusers.
bool describes_model(const fs::path& folder) {
  return fs::exists(folder / "config.json") || fs::exists(folder / "params.json") ||
         fs::exists(folder / "transformer" / "config.json");
}

// A folder with the source's sizes and tokenizer; empty where there is none.
fs::path assets_of(const Options& options, const fs::path& source) {
  if (!options.assets.empty()) return options.assets;
  if (remote::is_url(source.string())) return {};  // a checkpoint of ours, which is read where it is
  const fs::path folder = fs::is_directory(source) ? source : fs::absolute(source).parent_path();
  return describes_model(folder) ? folder : fs::path();
}

// Null where everything is to be converted as it is.
std::unique_ptr<models::Model> build_model(const Options& options, const checkpoint::WeightsSource& source,
                                           const fs::path& assets) {
  // Formats that know nothing of models are copied whole, unless a model is named.
  const bool has_other_names =
      source.format() == "Hugging Face weights" || source.contains("model.embed_tokens.weight");
  const bool wanted = options.to == "hf" || options.to == "bfl" || has_other_names || describes_model(source.path());
  if (options.model_flavor.empty() && !wanted) return nullptr;
  if (options.model_flavor.empty() && (assets.empty() || !describes_model(assets))) {
    throw UsageError(
        fmt::format("convert: the sizes of the model in {} are not known. Give --model.flavor, or --hf-assets with a "
                    "folder that has "
                    "config.json.",
                    options.source));
  }
  JobConfig config;
  const auto described = models::name_of_model_in(assets);
  if (options.to == "bfl") config.model.name = models::family_with_other_names();
  config.model.name = !options.model_name.empty() ? options.model_name : described.value_or(config.model.name);
  config.model.flavor = options.model_flavor.empty() ? "auto" : options.model_flavor;
  config.model.hf_assets_path = assets.string();
  return models::build_model(config, std::nullopt);
}

void convert(const Options& options) {
  const auto source = checkpoint::open_weights(options.source);
  const fs::path assets = assets_of(options, source->path());
  const auto model = build_model(options, *source, assets);
  models::ConvertOptions how{
      .to = kFormats.at(options.to), .model = model.get(), .assets = assets, .replace = options.force};
  if (!options.export_dtype.empty()) how.dtype = parse_dtype(options.export_dtype);
  models::convert_weights(*source, options.target, how);
}

}  // namespace

int run_convert(Arguments args) {
  Options options;
  CommandLine app(
      "Writes the weights of SRC in another format to DST. SRC is a distributed checkpoint (DCP), a folder or file of\n"
      "Hugging Face weights, a file of torch.save, or a folder of Meta's Llama (consolidated.NN.pth, params.json).\n"
      "Hugging Face weights need the sizes of the model: from config.json or params.json beside the weights, from\n"
      "--hf-assets or from --model.flavor. Between DCP and torch.save everything is taken over, training state too,\n"
      "unless --model.flavor is given; then only that model's weights are, under its own names.",
      "convert");
  app.option("SRC", options.source, "What to convert").required();
  app.option(
         "DST", options.target,
         "Folder (dcp, hf) or file (bfl, torch) to write, or an address (s3://, gs://); it appears when it is complete")
      .required();
  const auto formats = std::views::keys(kFormats);
  app.option("--to", options.to, "bfl (Black Forest Labs' names), dcp, hf or torch")
      .required()
      .one_of({formats.begin(), formats.end()});
  app.option(
      "--model.name,--model_name", options.model_name,
      "Model family; without it the one of config.json, for --to bfl the one that has these names, else that of the "
      "default configuration");
  app.option("--model.flavor,--model_flavor", options.model_flavor, "Its size");
  app.option("--export-dtype,--export_dtype", options.export_dtype,
             "float32, bfloat16 or float16 for the weights; without it as they are");
  app.option("--hf-assets,--hf_assets_path", options.assets,
             "Folder with config.json and the tokenizer's files, for --to hf and bfl; without it the folder of SRC");
  app.flag("--force", options.force, "Replace DST if it exists");
  if (!app.parse(args)) return 0;
  convert(options);
  return 0;
}

}  // namespace titanium::cli
