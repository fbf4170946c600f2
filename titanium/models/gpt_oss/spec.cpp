#include "titanium/models/gpt_oss/spec.h"

#include "titanium/models/gpt_oss/model.h"

namespace titanium::models::gpt_oss {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  Args args = options.flavor == "auto"
                  ? args_from_config_json(std::filesystem::path(options.hf_assets_path) / "config.json")
                  : flavors().at(options.flavor);
  decoder::apply_options(args, options, max_seq_len);
  return std::make_unique<GptOss>(args);
}

}  // namespace

ModelSpec spec() {
  return {.name = "gpt_oss", .flavors = names_of(flavors()), .build = build, .hugging_face_types = {"gpt_oss"}};
}

}  // namespace titanium::models::gpt_oss
