#include "titanium/models/llama4/spec.h"

#include "titanium/models/llama4/model.h"

namespace titanium::models::llama4 {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  Args args = options.flavor == "auto"
                  ? args_from_config_json(std::filesystem::path(options.hf_assets_path) / "config.json")
                  : flavors().at(options.flavor);
  decoder::apply_options(args, options, max_seq_len);
  return std::make_unique<Llama4>(args);
}

}  // namespace

ModelSpec spec() {
  return {.name = "llama4",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {"llama4", "llama4_text"}};
}

}  // namespace titanium::models::llama4
