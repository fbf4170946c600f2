#include <algorithm>

#include "titanium/schedule/rank_list.h"
#include "titanium/schedule/schedules.h"

namespace titanium::schedule {
namespace {

std::vector<Action> rank_list(int rank, int ranks, int micro_batches) {
  const int near = rank, far = 2 * ranks - 1 - rank;  // the rank's stages on the way down and on the way up
  const int hops = ranks - 1 - rank;
  RankList list;
  // Fill.
  for (int i = 0; i < 2 * hops; ++i) list.forward(near);
  for (int i = 0; i <= rank; ++i) {
    list.forward(near);
    list.forward(far);
  }
  for (int i = 0; i < hops; ++i) {
    list.input(far);
    list.weight();
    list.forward(far);
  }
  // Pairs, as long as there are micro-batches to begin.
  for (int i = 0; i < micro_batches - 2 * ranks + rank + 1; ++i) {
    if (i == 0 && hops == 0) {  // the turn of the V: here the first backward would wait for its pair, and all after it
      list.forward(near);
      list.backward(far);
    } else {
      list.overlapped(near, far);
    }
    list.overlapped(far, near);
  }
  // Drain. In the second half weight gradients are deferred, so that the next rank has its gradient sooner.
  for (int i = 0; i < hops; ++i) {
    list.backward(far);
    list.overlapped(far, near);
  }
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const int stage = i % 2 == 0 ? far : near;
    i <= rank ? list.backward(stage) : list.input(stage);
  }
  for (int i = 0; i < hops; ++i) {
    list.weight();
    list.input(near);
  }
  for (int i = 0; i <= rank; ++i) list.weight();
  return list.take();
}

}  // namespace

Table dual_pipe_v(const Shape& shape) {
  Shape filled = shape;  // the phases above fit into one another from this many micro-batches on
  filled.micro_batches = std::max(shape.micro_batches, 2 * shape.ranks);
  Table table = empty_table(filled, Placement::kV);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    table.ranks[rank] = rank_list(rank, shape.ranks, filled.micro_batches);
  }
  return first_micro_batches(std::move(table), shape.micro_batches);
}

}  // namespace titanium::schedule
