#include "titanium/models/flux/spec.h"

#include "titanium/models/flux/model.h"

namespace titanium::models::flux {
namespace {

// The sizes follow from the flavor, or from config.json of a transformer in diffusers' format: in the folder itself, or
// where a folder of the whole pipeline has it.
std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> /*max_seq_len*/) {
  if (options.flavor != "auto") return std::make_unique<Flux>(flavors().at(options.flavor));
  const std::filesystem::path folder = options.hf_assets_path, part = folder / "transformer" / "config.json";
  return std::make_unique<Flux>(args_from_config_json(std::filesystem::exists(part) ? part : folder / "config.json"));
}

}  // namespace

ModelSpec spec() {
  return {.name = "flux",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {},
          .training = {.task = "images", .parameter_groups = {}}};
}

}  // namespace titanium::models::flux
