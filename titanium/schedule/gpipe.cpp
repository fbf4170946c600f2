#include "titanium/schedule/schedules.h"

namespace titanium::schedule {

Table gpipe(const Shape& shape) {
  Table table = empty_table(shape, Placement::kLoop);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (const Kind kind : {Kind::kForward, Kind::kBackward}) {
      for (int i = 0; i < shape.micro_batches; ++i) table.ranks[rank].push_back({rank, kind, i});
    }
  }
  return table;
}

}  // namespace titanium::schedule
