#include "titanium/schedule/timeline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "titanium/base/error.h"

namespace titanium::schedule {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::infinity();

// An output of a stage for a micro-batch: its activation (of F) or the gradient of its input (of I or B).
struct Output {
  int stage;
  int micro_batch;
  bool gradient;
};

class Simulation {
 public:
  Simulation(const Table& table, const Costs& costs)
      : table_(table), costs_(costs), next_(table.ranks.size(), 0), free_at_(table.ranks.size(), 0) {
    for (auto& ends : ends_) ends.assign(size_t(table.stages()) * table.micro_batches, kNotYet);
    timeline_.ranks.resize(table.ranks.size());
  }

  Timeline run() && {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        while (advance(rank)) progress = true;
      }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < table_.ranks[rank].size()) throw UsageError(describe_circle(rank));
    }
    measure();
    return std::move(timeline_);
  }

 private:
  double& end_of(const Output& output) {
    return ends_[output.gradient][size_t(output.stage) * table_.micro_batches + output.micro_batch];
  }

  // Calls visit(output) for each output that the action needs.
  template <typename Visit>
  void for_needs(const Action& action, Visit visit) const {
    const auto [stage, kind, i, _] = action;
    if (kind == Kind::kForward && stage > 0) visit(Output{stage - 1, i, false});
    if (kind == Kind::kWeight) visit(Output{stage, i, true});
    if (kind != Kind::kInput && kind != Kind::kBackward) return;
    visit(Output{stage, i, false});
    if (stage + 1 < table_.stages()) visit(Output{stage + 1, i, true});
  }

  int step_length(size_t rank) const { return table_.ranks[rank][next_[rank]].overlaps_next ? 2 : 1; }

  double duration(const Action& action) const {
    if (action.kind == Kind::kForward) return costs_.forward - (action.overlaps_next ? costs_.hidden_by_overlap : 0);
    return (action.kind != Kind::kWeight ? costs_.input : 0) + (action.kind != Kind::kInput ? costs_.weight : 0);
  }

  // Runs the next step of the rank if all that it needs is there.
  bool advance(size_t rank) {
    const auto& list = table_.ranks[rank];
    if (next_[rank] == list.size()) return false;
    const int count = step_length(rank);
    double start = free_at_[rank], length = 0;
    for (size_t i = next_[rank]; i < next_[rank] + count; ++i) {
      for_needs(list[i], [&](const Output& output) { start = std::max(start, end_of(output)); });
      length += duration(list[i]);
    }
    if (start == kNotYet) return false;
    timeline_.ranks[rank].push_back({static_cast<int>(next_[rank]), count, start, start + length});
    for (int i = 0; i < count; ++i) {
      const Action& action = list[next_[rank]++];
      if (action.kind == Kind::kWeight) continue;
      end_of({action.stage, action.micro_batch, action.kind != Kind::kForward}) = start + length;
    }
    free_at_[rank] = start + length;
    return true;
  }

  void measure() {
    double busy = 0;
    for (const auto& steps : timeline_.ranks) {
      for (const Step& step : steps) busy += step.end - step.start;
      if (!steps.empty()) timeline_.makespan = std::max(timeline_.makespan, steps.back().end);
    }
    timeline_.bubble = 1 - busy / (timeline_.makespan * static_cast<double>(timeline_.ranks.size()));
  }

  // Where the rank stands, what it waits for, and which rank has that still before it.
  std::pair<std::string, size_t> describe_wait(size_t rank) {
    const auto& list = table_.ranks[rank];
    for (size_t i = next_[rank]; i < next_[rank] + step_length(rank); ++i) {
      std::optional<Output> missing;
      for_needs(list[i], [&](const Output& output) {
        if (end_of(output) == kNotYet) missing = output;
      });
      if (!missing) continue;
      const size_t peer = table_.owner[missing->stage];
      const auto& other = table_.ranks[peer];
      const auto found = std::ranges::find_if(other, [&](const Action& action) {
        return action.stage == missing->stage && action.micro_batch == missing->micro_batch &&
               action.kind != Kind::kWeight && (action.kind != Kind::kForward) == missing->gradient;
      });
      TI_ASSERT(found != other.end());
      return {fmt::format("rank {} waits at its action {} ({}) for {}, which is action {} of rank {}", rank, i + 1,
                          to_string(list[i]), to_string(*found), found - other.begin() + 1, peer),
              peer};
    }
    TI_ASSERT(false, "rank {} waits for nothing", rank);
    return {};
  }

  std::string describe_circle(size_t rank) {
    std::set<size_t> seen;
    while (seen.insert(rank).second) rank = describe_wait(rank).second;  // after this, `rank` is on the circle
    std::vector<std::string> waits;
    const size_t first = rank;
    do {
      auto [sentence, peer] = describe_wait(rank);
      waits.push_back(std::move(sentence));
      rank = peer;
    } while (rank != first);
    return fmt::format("The ranks wait for each other: {}. Change the order of these actions.", fmt::join(waits, "; "));
  }

  const Table& table_;
  const Costs& costs_;
  std::vector<size_t> next_;
  std::vector<double> free_at_;
  std::array<std::vector<double>, 2> ends_;  // of activations and gradients, by stage and micro-batch
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Table& table, const Costs& costs) {
  TI_ASSERT(std::min({costs.forward, costs.input, costs.weight}) > 0);
  return Simulation(table, costs).run();
}

}  // namespace titanium::schedule
