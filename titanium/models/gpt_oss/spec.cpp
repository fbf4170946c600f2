#include "titanium/models/gpt_oss/spec.h"

#include "titanium/models/decoder/build.h"
#include "titanium/models/gpt_oss/model.h"

namespace titanium::models::gpt_oss {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  return decoder::build_from_config_json<GptOss, Args, args_from_config_json>(options, max_seq_len, flavors());
}

}  // namespace

ModelSpec spec() {
  return {.name = "gpt_oss",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {"gpt_oss"},
          .publishers = {{"gpt-oss-", "openai"}}};
}

}  // namespace titanium::models::gpt_oss
