#include "titanium/models/model.h"

#include <algorithm>
#include <numeric>

#include "titanium/base/error.h"

namespace titanium::models {

ModelStage whole_stage(int64_t blocks) {
  ModelStage stage{.is_first = true, .blocks = std::vector<int64_t>(static_cast<size_t>(blocks)), .is_last = true};
  std::iota(stage.blocks.begin(), stage.blocks.end(), 0);
  return stage;
}

ModelStage stage_of(const schedule::ModelChildren& children, const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  ModelStage stage;
  stage.is_first = std::ranges::any_of(children.before, has);
  stage.is_last = std::ranges::any_of(children.after, has);
  for (size_t block = 0; block < children.blocks.size(); ++block) {
    if (has(children.blocks[block])) stage.blocks.push_back(static_cast<int64_t>(block));
  }
  if (!stage.is_last || std::ranges::all_of(children.after, has)) return stage;
  throw UsageError(
      fmt::format("parallelism.module_fqns_per_model_part: {} make the loss together, so they belong to one stage.",
                  fmt::join(children.after, " and ")));
}

const HuggingFaceAdapter& hugging_face_of(const Model& model) {
  if (const HuggingFaceAdapter* adapter = model.hugging_face()) return *adapter;
  throw UsageError(
      "this model has no form at Hugging Face. Use a distributed checkpoint: leave checkpoint.initial_load_in_hf and "
      "checkpoint.last_save_in_hf out.");
}

}  // namespace titanium::models
