#include "titanium/schedule/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace titanium::schedule {
namespace {

// Keeps the actions that `keep` accepts; a pair that loses one half is a pair no more.
template <typename Keep>
void filter(Table& table, Keep keep) {
  for (std::vector<Action>& list : table.ranks) {
    for (size_t i = 0; i + 1 < list.size(); ++i) list[i].overlaps_next &= keep(list[i + 1]);
    std::erase_if(list, [&](const Action& action) { return !keep(action); });
  }
}

}  // namespace

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, "FIWB"[static_cast<int>(action.kind)], action.micro_batch);
}

std::vector<int> place_stages(Placement placement, int ranks, int stages) {
  std::vector<int> owner(stages);
  for (int stage = 0; stage < stages; ++stage) {
    const bool backwards = placement == Placement::kV && stage / ranks % 2 == 1;
    owner[stage] = backwards ? ranks - 1 - stage % ranks : stage % ranks;
  }
  return owner;
}

Table empty_table(const Shape& shape, Placement placement) {
  return {.micro_batches = shape.micro_batches,
          .owner = place_stages(placement, shape.ranks, shape.stages()),
          .ranks = std::vector<std::vector<Action>>(shape.ranks)};
}

Table first_micro_batches(Table table, int micro_batches) {
  table.micro_batches = std::min(table.micro_batches, micro_batches);
  filter(table, [&](const Action& action) { return action.micro_batch < micro_batches; });
  return table;
}

Table forwards_only(const std::vector<int>& owner, int ranks, int micro_batches) {
  Table table{.micro_batches = micro_batches, .owner = owner, .backward = false};
  table.ranks.resize(static_cast<size_t>(ranks));
  for (int stage = 0; stage < table.stages(); ++stage) {
    auto& actions = table.ranks[static_cast<size_t>(owner[static_cast<size_t>(stage)])];
    for (int i = 0; i < micro_batches; ++i) actions.push_back({.stage = stage, .micro_batch = i});
  }
  return table;
}

std::vector<int> peak_live_activations(const Table& table) {
  std::vector<int> peaks;
  for (const std::vector<Action>& list : table.ranks) {
    int live = 0, peak = 0;
    for (const Action& action : list) {
      if (action.kind == Kind::kForward) peak = std::max(peak, ++live);
      if (action.kind == Kind::kWeight || action.kind == Kind::kBackward) --live;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace titanium::schedule
