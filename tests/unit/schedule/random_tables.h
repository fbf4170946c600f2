// Random tables for the fuzz tests.
#pragma once

#include <algorithm>
#include <random>
#include <set>

#include "titanium/schedule/table.h"

namespace titanium::schedule {

// A valid table in random order: ranks take turns at random, and each does something that can be done then. Stages are
// placed at random too, at least one on each rank.
inline Table random_table(std::mt19937& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  const int ranks = draw(1, 5), stages = ranks + draw(0, 6);
  Table table{.micro_batches = draw(1, 7), .owner = {}, .ranks = std::vector<std::vector<Action>>(ranks)};
  for (int stage = 0; stage < stages; ++stage) table.owner.push_back(stage < ranks ? stage : draw(0, ranks - 1));
  std::ranges::shuffle(table.owner, random);

  std::vector<Action> ready;
  for (int i = 0; i < table.micro_batches; ++i) ready.push_back({0, Kind::kForward, i});
  std::set<std::pair<int, int>> forwards;  // stage and micro-batch
  while (!ready.empty()) {
    std::swap(ready[draw(0, static_cast<int>(ready.size()) - 1)], ready.back());
    const Action action = ready.back();
    ready.pop_back();
    table.ranks[table.owner[action.stage]].push_back(action);
    const auto backward = [&](int stage) {
      ready.push_back({stage, draw(0, 1) ? Kind::kBackward : Kind::kInput, action.micro_batch});
    };
    if (action.kind == Kind::kForward) {
      if (action.stage + 1 < stages) {
        ready.push_back({action.stage + 1, Kind::kForward, action.micro_batch});
      } else {
        backward(action.stage);
      }
    } else if (action.kind != Kind::kWeight) {
      if (action.stage > 0) backward(action.stage - 1);
      if (action.kind == Kind::kInput) ready.push_back({action.stage, Kind::kWeight, action.micro_batch});
    }
  }
  return table;
}

// Makes pairs of neighbours that may be pairs.
inline void pair_up(Table& table, std::mt19937& random) {
  for (auto& list : table.ranks) {
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      const bool fits = list[i].kind == Kind::kForward && list[i + 1].kind != Kind::kForward &&
                        list[i + 1].kind != Kind::kWeight && list[i].micro_batch != list[i + 1].micro_batch;
      if (fits && random() % 2) list[i++].overlaps_next = true;
    }
  }
}

// One random change: an action lost, doubled, exchanged, moved to another rank, or renamed.
inline void damage(Table& table, std::mt19937& random) {
  const auto draw = [&](size_t size) { return size ? random() % size : 0; };
  auto& list = table.ranks[draw(table.ranks.size())];
  if (list.empty()) return;
  const size_t at = draw(list.size());
  const Action action = list[at];
  switch (random() % 8) {
    case 0:
      list.erase(list.begin() + at);
      break;
    case 1:
      list.insert(list.begin() + draw(list.size()), action);
      break;
    case 2:
      std::swap(list[at], list[draw(list.size())]);
      break;
    case 3: {
      list.erase(list.begin() + at);
      auto& other = table.ranks[draw(table.ranks.size())];
      other.insert(other.begin() + draw(other.size() + 1), action);
      break;
    }
    case 4:
      list[at].micro_batch += static_cast<int>(draw(3)) - 1;
      break;
    case 5:
      list[at].stage += static_cast<int>(draw(3)) - 1;
      break;
    case 6:
      list[at].kind = static_cast<Kind>(draw(4));
      break;
    case 7:
      list[at].overlaps_next = !list[at].overlaps_next;
      break;
  }
}

}  // namespace titanium::schedule
