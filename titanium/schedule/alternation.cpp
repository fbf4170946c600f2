#include "titanium/schedule/alternation.h"

#include <algorithm>

namespace titanium::schedule {
namespace {

int rounds(int ranks, int micro_batches) { return std::max(1, micro_batches / ranks); }

// The k-th forward (or backward) of a rank.
Action nth(const Shape& shape, int rank, int k, Kind kind) {
  const int per_round = shape.micro_batches / rounds(shape.ranks, shape.micro_batches);
  const int turn = k / per_round % shape.stages_per_rank;
  const int local_stage = kind == Kind::kForward ? turn : shape.stages_per_rank - 1 - turn;
  const int round = k / (per_round * shape.stages_per_rank);
  return {local_stage * shape.ranks + rank, kind, round * per_round + k % per_round};
}

}  // namespace

Table alternate(const Shape& asked, const Alternation& alternation) {
  Shape shape = asked;
  while (shape.micro_batches % rounds(shape.ranks, shape.micro_batches) != 0) ++shape.micro_batches;
  const int per_round = shape.micro_batches / rounds(shape.ranks, shape.micro_batches);
  const int total = shape.stages_per_rank * shape.micro_batches;

  Table table = empty_table(shape, Placement::kLoop);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const auto add = [&](int k, Kind kind) { table.ranks[rank].push_back(nth(shape, rank, k, kind)); };
    const int hops = shape.ranks - 1 - rank;
    const int warm_up = std::min(total, (shape.stages_per_rank - 1) * per_round + alternation.warm_up_per_hop * hops);
    for (int k = 0; k < warm_up; ++k) add(k, Kind::kForward);
    for (int k = 0; k < total; ++k) {
      if (warm_up + k < total) add(warm_up + k, Kind::kForward);
      add(k, alternation.split_backward ? Kind::kInput : Kind::kBackward);
      if (alternation.split_backward && k >= rank) add(k - rank, Kind::kWeight);
    }
    if (!alternation.split_backward) continue;
    for (int k = std::max(0, total - rank); k < total; ++k) add(k, Kind::kWeight);
  }
  return first_micro_batches(std::move(table), asked.micro_batches);
}

}  // namespace titanium::schedule
