#include "titanium/models/qwen3/spec.h"

#include "titanium/models/decoder/build.h"
#include "titanium/models/qwen3/model.h"

namespace titanium::models::qwen3 {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  return decoder::build_from_config_json<Qwen3, Args, args_from_config_json>(options, max_seq_len, flavors());
}

}  // namespace

ModelSpec spec() {
  return {.name = "qwen3",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {"qwen3", "qwen3_moe"},
          .publishers = {{"Qwen", "Qwen"}}};
}

}  // namespace titanium::models::qwen3
