#include "titanium/schedule/check.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "titanium/base/error.h"
#include "titanium/schedule/timeline.h"

namespace titanium::schedule {
namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

std::string place(size_t rank, size_t position, const Action& action) {
  return fmt::format("Rank {}, action {} ({})", rank, position + 1, to_string(action));
}

// Position in its rank's list of each action. A hash map, for a table out of a file may name a few huge numbers.
class Positions {
 public:
  explicit Positions(const Table& table) {
    for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
      for (size_t i = 0; i < table.ranks[rank].size(); ++i) add(table, rank, i);
    }
  }

  std::optional<size_t> find(int stage, Kind kind, int micro_batch) const {
    const auto found = positions_.find(key(stage, kind, micro_batch));
    return found == positions_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  static uint64_t key(int stage, Kind kind, int micro_batch) {
    return (uint64_t(stage) << 34) | (uint64_t(micro_batch) << 2) | uint64_t(kind);
  }

  void add(const Table& table, size_t rank, size_t position) {
    const Action& action = table.ranks[rank][position];
    const auto where = [&] { return place(rank, position, action); };
    if (action.stage < 0 || action.stage >= table.stages()) {
      refuse("{}: there is no stage {}; stages go from 0 to {}.", where(), action.stage, table.stages() - 1);
    }
    if (action.micro_batch < 0 || action.micro_batch >= table.micro_batches) {
      refuse("{}: there is no micro-batch {}; they go from 0 to {}.", where(), action.micro_batch,
             table.micro_batches - 1);
    }
    const int owner = table.owner[action.stage];
    if (owner != int(rank)) refuse("{}: stage {} belongs to rank {}.", where(), action.stage, owner);
    if (!table.backward && action.kind != Kind::kForward) {
      refuse("{}: a table of forwards has no backward.", where());
    }
    const auto [first, added] = positions_.emplace(key(action.stage, action.kind, action.micro_batch), position);
    if (!added) refuse("{}: the same stands already at action {}.", where(), first->second + 1);
  }

  std::unordered_map<uint64_t, size_t> positions_;
};

void check_layout(const Table& table) {
  if (table.ranks.empty() || table.owner.empty() || table.micro_batches < 1) {
    refuse("The table is empty: it has {} ranks, {} stages and {} micro-batches.", table.ranks.size(), table.stages(),
           table.micro_batches);
  }
  for (int stage = 0; stage < table.stages(); ++stage) {
    const int owner = table.owner[stage];
    if (owner < 0 || owner >= int(table.ranks.size())) {
      refuse("Stage {} is placed on rank {}, but there are {} ranks.", stage, owner, table.ranks.size());
    }
  }
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    if (table.ranks[rank].empty()) refuse("Rank {} has nothing to do. Give it a stage, or use fewer ranks.", rank);
  }
}

// One micro-batch of one stage: all its actions are there, once, and in order.
void check_micro_batch(const Table& table, const Positions& positions, int stage, int micro_batch) {
  const int rank = table.owner[stage];
  const auto find = [&](Kind kind) { return positions.find(stage, kind, micro_batch); };
  const auto name = [&](Kind kind) { return to_string({stage, kind, micro_batch}); };
  const auto require = [&](Kind kind) {
    const auto found = find(kind);
    if (!found) refuse("Rank {}: {} is missing.", rank, name(kind));
    return *found;
  };
  const auto require_order = [&](Kind first, Kind second) {
    const size_t position = require(second);
    if (require(first) < position) return;
    refuse("{}: it stands before {}, which it needs.", place(rank, position, table.ranks[rank][position]), name(first));
  };

  require(Kind::kForward);
  if (!table.backward) return;
  const auto whole = find(Kind::kBackward);
  if (!whole && !find(Kind::kInput) && !find(Kind::kWeight)) {
    refuse("Rank {}: the backward of stage {} and micro-batch {} is missing: {}, or {} and {}.", rank, stage,
           micro_batch, name(Kind::kBackward), name(Kind::kInput), name(Kind::kWeight));
  }
  if (!whole) {
    require_order(Kind::kForward, Kind::kInput);
    require_order(Kind::kInput, Kind::kWeight);
    return;
  }
  for (const Kind part : {Kind::kInput, Kind::kWeight}) {
    const auto found = find(part);
    if (!found) continue;
    refuse("{}: {} has computed that already. Use either B, or I and W.",
           place(rank, *found, table.ranks[rank][*found]), name(Kind::kBackward));
  }
  require_order(Kind::kForward, Kind::kBackward);
}

void check_pairs(const Table& table) {
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    const auto& list = table.ranks[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].overlaps_next) continue;
      const bool valid = list[i].kind == Kind::kForward && i + 1 < list.size() && !list[i + 1].overlaps_next &&
                         (list[i + 1].kind == Kind::kBackward || list[i + 1].kind == Kind::kInput);
      if (!valid) refuse("{}: an overlapped pair is a forward (F) and a backward (B or I).", place(rank, i, list[i]));
      if (list[i].micro_batch == list[i + 1].micro_batch) {
        refuse("{}: it cannot overlap with {}, which needs it.", place(rank, i, list[i]), to_string(list[i + 1]));
      }
    }
  }
}

void check_memory(const Table& table, int allowed) {
  const std::vector<int> peaks = peak_live_activations(table);
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank] <= allowed) continue;
    refuse("Rank {} would hold {} activations at once, but {} are allowed. Put backwards earlier.", rank, peaks[rank],
           allowed);
  }
}

}  // namespace

void check_table(const Table& table, const Limits& limits) {
  check_layout(table);
  const Positions positions(table);
  for (int stage = 0; stage < table.stages(); ++stage) {
    for (int i = 0; i < table.micro_batches; ++i) check_micro_batch(table, positions, stage, i);
  }
  check_pairs(table);
  check_memory(table, limits.live_activations);
  simulate(table);  // throws if the ranks wait for each other
}

}  // namespace titanium::schedule
