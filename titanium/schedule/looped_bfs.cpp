#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

Table looped_bfs(const Shape& shape) {
  Table table = empty_table(shape, Placement::kLoop);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::vector<Action>& list = table.ranks[rank];
    for (int stage = rank; stage < shape.stages(); stage += shape.ranks) {
      for (int i = 0; i < shape.micro_batches; ++i) list.push_back({stage, Kind::kForward, i});
    }
    // Backwards are the mirror image: the activations that came last go first.
    for (size_t i = list.size(); i-- > 0;) list.push_back({list[i].stage, Kind::kBackward, list[i].micro_batch});
  }
  return table;
}

}  // namespace titanium::schedule
