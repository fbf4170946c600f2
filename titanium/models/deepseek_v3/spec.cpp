#include "titanium/models/deepseek_v3/spec.h"

#include "titanium/models/decoder/build.h"
#include "titanium/models/deepseek_v3/model.h"

namespace titanium::models::deepseek_v3 {
namespace {

std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  return decoder::build_from_config_json<DeepseekV3, Args, args_from_config_json>(options, max_seq_len, flavors());
}

}  // namespace

ModelSpec spec() {
  return {.name = "deepseek_v3",
          .flavors = names_of(flavors()),
          .build = build,
          .hugging_face_types = {"deepseek_v3", "deepseek_v2"},
          .publishers = {{"DeepSeek-", "deepseek-ai"}, {"deepseek-", "deepseek-ai"}}};
}

}  // namespace titanium::models::deepseek_v3
