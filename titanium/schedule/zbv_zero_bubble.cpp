#include <algorithm>

#include "titanium/schedule/rank_list.h"
#include "titanium/schedule/schedules.h"

namespace titanium::schedule {
namespace {

std::vector<Action> rank_list(int rank, int ranks, int micro_batches) {
  const int near = rank, far = 2 * ranks - 1 - rank;  // the rank's stages on the way down and on the way up
  RankList list;
  const auto input_and_weight = [&](int stage) {
    list.input(stage);
    list.weight(stage);
  };
  // Until the first micro-batch is back at this rank's far stage.
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) list.forward(near);
  for (int i = 0; i < rank; ++i) {
    list.forward(far);
    list.forward(near);
  }
  // Until the first gradient is back at the near stage.
  for (int i = 0; i < ranks - rank; ++i) {
    list.forward(far);
    input_and_weight(far);
  }
  while (list.forwards(far) < micro_batches) {
    if (list.forwards(near) < micro_batches) list.forward(near);
    input_and_weight(near);
    list.forward(far);
    input_and_weight(far);
  }
  // The gradients that other ranks wait for go first; the weights follow when there is nothing else.
  for (int i = 0; i < rank; ++i) {
    list.input(near);
    list.input(far);
  }
  for (int i = 0; i < ranks - rank; ++i) input_and_weight(near);
  for (const int stage : {far, near}) {
    while (list.weight_due(stage)) list.weight(stage);
  }
  return list.take();
}

}  // namespace

Table zbv_zero_bubble(const Shape& shape) {
  Shape filled = shape;  // the phases above fit into one another from this many micro-batches on
  filled.micro_batches = std::max(shape.micro_batches, 2 * shape.ranks - 1);
  Table table = empty_table(filled, Placement::kV);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    table.ranks[rank] = rank_list(rank, shape.ranks, filled.micro_batches);
  }
  return first_micro_batches(std::move(table), shape.micro_batches);
}

}  // namespace titanium::schedule
