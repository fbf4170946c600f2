#include "titanium/models/llama4/spec.h"

#include "titanium/models/decoder/build.h"
#include "titanium/models/llama4/model.h"

namespace titanium::models::llama4 {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  return decoder::build_from_config_json<Llama4, Args, args_from_config_json>(options, max_seq_len, flavors());
}

}  // namespace

ModelSpec spec() {
  return {.name = "llama4",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {"llama4", "llama4_text"},
          .publishers = {{"Llama-4-", "meta-llama"}}};
}

}  // namespace titanium::models::llama4
