#include "titanium/models/flux/spec.h"

#include "titanium/base/error.h"
#include "titanium/models/flux/model.h"

namespace titanium::models::flux {
namespace {

constexpr int64_t kPatchElements = 4;

// The sizes follow from the flavor, or from config.json of a transformer in diffusers' format: in the folder itself, or
// where a folder of the whole pipeline has it. Such a folder may have those of its autoencoder, too.
std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> /*max_seq_len*/) {
  if (options.flavor != "auto") return std::make_unique<Flux>(flavors().at(options.flavor));
  const std::filesystem::path folder = options.hf_assets_path, part = folder / "transformer" / "config.json";
  const bool is_pipeline = std::filesystem::exists(part);
  Args args = args_from_config_json(is_pipeline ? part : folder / "config.json");
  args.guidance = options.guidance;
  const std::filesystem::path autoencoder = folder / "vae" / "config.json";
  if (is_pipeline && std::filesystem::exists(autoencoder)) args.autoencoder = autoencoder_from_config_json(autoencoder);
  if (args.in_channels != kPatchElements * args.autoencoder.latent_channels) {
    throw UsageError(fmt::format(
        "{}: in_channels = {} should be {}, a patch of 2 x 2 elements of the autoencoder's {} channels. Use sizes that "
        "belong together.",
        (is_pipeline ? part : folder / "config.json").string(), args.in_channels,
        kPatchElements * args.autoencoder.latent_channels, args.autoencoder.latent_channels));
  }
  return std::make_unique<Flux>(args);
}

}  // namespace

ModelSpec spec() {
  return {.name = "flux",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {},
          .training = {.task = "images", .parameter_groups = {}, .selective_recomputes_all = true},
          .publishers = {{"FLUX.", "black-forest-labs"}}};
}

}  // namespace titanium::models::flux
