#include "titanium/schedule/timeline.h"

#include "tests/unit/schedule/random_tables.h"
#include "tests/unit/schedule/shapes.h"
#include "titanium/schedule/csv.h"

namespace titanium::schedule {
namespace {

TEST(Timeline, StepsStartWhenTheirInputsAreThere) {
  const Timeline timeline = simulate(parse_csv("0F0,0I0,0W0\n1F0,1I0,1W0\n", "s.csv"),
                                     {.forward = 2, .input = 3, .weight = 4, .hidden_by_overlap = 0});
  const auto starts = [&](int rank) {
    std::vector<double> times;
    for (const Step& step : timeline.ranks[rank]) times.push_back(step.start);
    return times;
  };
  EXPECT_EQ(starts(0), (std::vector<double>{0, 7, 10}));
  EXPECT_EQ(starts(1), (std::vector<double>{2, 4, 7}));
  EXPECT_EQ(timeline.makespan, 14);
  EXPECT_DOUBLE_EQ(timeline.bubble, 1 - 18.0 / 28);
}

TEST(Timeline, WholeBackwardsTakeBothParts) {
  const Timeline timeline = simulate(parse_csv("0F0,0B0\n", "s.csv"), {.forward = 2, .input = 3, .weight = 4});
  EXPECT_EQ(timeline.makespan, 9);
  EXPECT_EQ(timeline.bubble, 0);
}

TEST(Timeline, PairsAreOneStepThatOverlapShortens) {
  const Table table = parse_csv("0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1\n", "s.csv");
  const Timeline plain = simulate(table);
  EXPECT_EQ(plain.ranks[0].size(), 7u);
  EXPECT_EQ(plain.ranks[0][3].count, 2);
  EXPECT_EQ(plain.ranks[0][3].end - plain.ranks[0][3].start, 3);
  EXPECT_EQ(simulate(table, {.hidden_by_overlap = 0.5}).makespan, plain.makespan - 0.5);
}

// The list order is kept, nothing overlaps on a rank, every input ends before its step starts, and no step could start
// sooner.
TEST(TimelineFuzz, StartsAreTheEarliestThatDependenciesAllow) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const Table table = random_table(random);
    const Costs costs{.forward = 1.0 + random() % 3, .input = 1.0 + random() % 3, .weight = 1.0 + random() % 3};
    const Timeline timeline = simulate(table, costs);
    std::map<std::tuple<int, int, bool>, double> ends;  // stage, micro-batch, gradient
    for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
      for (const Step& step : timeline.ranks[rank]) {
        const Action& a = table.ranks[rank][step.first];
        if (a.kind != Kind::kWeight) ends[{a.stage, a.micro_batch, a.kind != Kind::kForward}] = step.end;
      }
    }
    for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
      double earliest = 0;
      for (const Step& step : timeline.ranks[rank]) {
        const Action& a = table.ranks[rank][step.first];
        const bool backward = a.kind == Kind::kBackward || a.kind == Kind::kInput;
        if (a.kind == Kind::kForward && a.stage > 0) {
          earliest = std::max(earliest, ends.at({a.stage - 1, a.micro_batch, false}));
        }
        if (backward) earliest = std::max(earliest, ends.at({a.stage, a.micro_batch, false}));
        if (backward && a.stage + 1 < table.stages()) {
          earliest = std::max(earliest, ends.at({a.stage + 1, a.micro_batch, true}));
        }
        ASSERT_EQ(step.start, earliest) << to_csv(table);
        earliest = step.end;
      }
    }
  }
}

}  // namespace
}  // namespace titanium::schedule
