#include "titanium/models/qwen3/spec.h"

#include "titanium/models/qwen3/model.h"

namespace titanium::models::qwen3 {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  Args args = options.flavor == "auto"
                  ? args_from_config_json(std::filesystem::path(options.hf_assets_path) / "config.json")
                  : flavors().at(options.flavor);
  decoder::apply_options(args, options, max_seq_len);
  return std::make_unique<Qwen3>(args);
}

}  // namespace

ModelSpec spec() {
  return {
      .name = "qwen3", .flavors = names_of(flavors()), .build = build, .hugging_face_types = {"qwen3", "qwen3_moe"}};
}

}  // namespace titanium::models::qwen3
