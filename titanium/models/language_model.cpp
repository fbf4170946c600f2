#include "titanium/models/language_model.h"

#include <numeric>

namespace titanium::models {

ModelStage whole_stage(int64_t blocks) {
  ModelStage stage{.is_first = true, .blocks = std::vector<int64_t>(static_cast<size_t>(blocks)), .is_last = true};
  std::iota(stage.blocks.begin(), stage.blocks.end(), 0);
  return stage;
}

}  // namespace titanium::models
