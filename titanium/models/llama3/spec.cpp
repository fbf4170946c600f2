#include "titanium/models/llama3/spec.h"

#include "titanium/models/decoder/build.h"
#include "titanium/models/llama3/model.h"

namespace titanium::models::llama3 {
namespace {

using Flavors = std::map<std::string, Args>;

Args args_from_folder(const std::filesystem::path& folder) {
  const bool metas =
      !std::filesystem::exists(folder / "config.json") && std::filesystem::exists(folder / "params.json");
  return metas ? args_from_params_json(folder / "params.json") : args_from_config_json(folder / "config.json");
}

template <const Flavors& (*kFlavors)()>
std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len) {
  return decoder::build<Llama3>(options, max_seq_len, kFlavors(), args_from_folder);
}

template <const Flavors& (*kFlavors)()>
ModelSpec spec(const std::string& name) {
  return {.name = name,
          .flavors = names_of(kFlavors()),
          .build = build<kFlavors>,
          .hugging_face_types = {"llama"},
          .publishers = {{"Llama-", "meta-llama"}, {"Mistral-", "mistralai"}}};
}

}  // namespace

ModelSpec llama2_spec() { return spec<llama2_flavors>("llama2"); }
ModelSpec llama3_spec() { return spec<llama3_flavors>("llama3"); }

}  // namespace titanium::models::llama3
