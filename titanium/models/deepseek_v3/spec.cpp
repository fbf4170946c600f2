#include "titanium/models/deepseek_v3/spec.h"

#include "titanium/models/deepseek_v3/model.h"

namespace titanium::models::deepseek_v3 {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  Args args = options.flavor == "auto"
                  ? args_from_config_json(std::filesystem::path(options.hf_assets_path) / "config.json")
                  : flavors().at(options.flavor);
  decoder::apply_options(args, options, max_seq_len);
  return std::make_unique<DeepseekV3>(args);
}

}  // namespace

ModelSpec spec() {
  return {.name = "deepseek_v3",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {"deepseek_v3", "deepseek_v2"}};
}

}  // namespace titanium::models::deepseek_v3
