#include "titanium/schedule/schedules.h"

#include "tests/unit/schedule/shapes.h"
#include "titanium/schedule/check.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/timeline.h"

namespace titanium::schedule {
namespace {

Timeline timeline_of(const char* name, const Shape& shape, const Costs& costs = {}) {
  return simulate(build_table(find_schedule(name), shape), costs);
}

std::vector<int> peaks_of(const char* name, const Shape& shape) {
  return peak_live_activations(build_table(find_schedule(name), shape));
}

TEST(Schedules, EveryTableIsValid) {
  for_all_shapes([](const Schedule& schedule, const Shape& shape) {
    const Table table = build_table(schedule, shape);
    EXPECT_NO_THROW(check_table(table));
    EXPECT_EQ(table.micro_batches, shape.micro_batches);
    EXPECT_EQ(table.stages(), shape.stages());
    EXPECT_EQ(table.owner, place_stages(schedule.placement, shape.ranks, shape.stages()));
    EXPECT_NO_THROW(check_table(forwards_only(table.owner, shape.ranks, shape.micro_batches)));
  });
}

TEST(Schedules, NamesAreFoundInAnyCase) {
  EXPECT_EQ(find_schedule("1f1b").name, "1F1B");
  EXPECT_EQ(find_schedule("INTERLEAVEDzerobubble").name, "InterleavedZeroBubble");
  EXPECT_EQ(schedule_names().size(), 9u);
}

TEST(Schedules, UnknownNamesGetTheList) {
  const std::string sentence = refusal([] { find_schedule("Interleaved1F1"); });
  EXPECT_NE(sentence.find("'Interleaved1F1' is not a pipeline schedule. Did you mean Interleaved1F1B? Use one of "),
            std::string::npos)
      << sentence;
  for (const std::string& name : schedule_names()) EXPECT_NE(sentence.find(name), std::string::npos);
}

TEST(Schedules, ShapesThatDoNotSuitAreRefused) {
  const auto refused = [](const char* name, const Shape& shape) {
    return refusal([&] { build_table(find_schedule(name), shape); });
  };
  EXPECT_EQ(refused("1F1B", {4, 2, 8}), "1F1B wants exactly 1 stage per rank, not 2.");
  EXPECT_EQ(refused("LoopedBFS", {4, 1, 8}), "LoopedBFS wants at least 2 stages per rank, not 1.");
  EXPECT_EQ(refused("DualPipeV", {4, 3, 8}), "DualPipeV wants exactly 2 stages per rank, not 3.");
  EXPECT_EQ(refused("GPipe", {0, 1, 8}), "A pipeline of 0 ranks and 8 micro-batches is none: both must be at least 1.");
  EXPECT_EQ(refused("GPipe", {4, 1, 0}), "A pipeline of 4 ranks and 0 micro-batches is none: both must be at least 1.");
  EXPECT_EQ(refused("GPipe", {1000, 1, 1000000}),
            "1000 ranks x 1 stages x 1000000 micro-batches are more than the 16777216 that a table may hold.");
  EXPECT_EQ(refused("PipelineScheduleMulti", {4, 2, 8}),
            "PipelineScheduleMulti takes its table from a CSV file. Name one.");
}

TEST(Schedules, StagesAreDealtInLoopsOrForthAndBack) {
  EXPECT_EQ(place_stages(Placement::kLoop, 3, 6), (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(place_stages(Placement::kV, 3, 6), (std::vector{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(place_stages(Placement::kV, 2, 8), (std::vector{0, 1, 1, 0, 0, 1, 1, 0}));
}

// GPipe, PipeDream-flush: (p - 1) / (m + p - 1), whatever F and B cost.
TEST(Schedules, BubblesOfSingleStageSchedulesAreThoseOfTheLiterature) {
  for (const double p : {1, 2, 3, 4, 8}) {
    for (const double m : {1, 2, 4, 7, 8, 32}) {
      for (const char* name : {"GPipe", "1F1B"}) {
        for (const Costs costs : {Costs{}, Costs{.forward = 2, .input = 3, .weight = 0.5}}) {
          const auto timeline = timeline_of(name, {int(p), 1, int(m)}, costs);
          EXPECT_NEAR(timeline.bubble, (p - 1) / (m + p - 1), 1e-12) << name << " " << p << " " << m;
        }
      }
    }
  }
}

// Narayanan et al. 2021: interleaving divides the bubble by v. Lamy-Poirier 2022: breadth first has the same bubble.
TEST(Schedules, BubblesOfInterleavedSchedulesAreDividedByTheStagesPerRank) {
  for (const double p : {2, 3, 4, 8}) {
    for (const double v : {2, 3, 4}) {
      for (const double rounds : {1, 2, 5}) {
        const double m = rounds * p;
        for (const char* name : {"Interleaved1F1B", "LoopedBFS"}) {
          EXPECT_NEAR(timeline_of(name, {int(p), int(v), int(m)}).bubble, (p - 1) / (v * m + p - 1), 1e-12)
              << name << " " << p << " " << v << " " << m;
        }
      }
    }
  }
}

// Qi et al. 2023: with deferred weight gradients a rank waits (p - 1) (F + I - W).
TEST(Schedules, BubbleOfInterleavedZeroBubbleIsThatOfTheLiterature) {
  for (const double p : {2, 3, 4, 8}) {
    for (const double m : {2 * p, 3 * p, 6 * p}) {
      for (const Costs& c : {Costs{}, Costs{2, 2, 1}, Costs{3, 2, 1}, Costs{4, 5, 4}}) {
        const double expected = 2 * m * (c.forward + c.input + c.weight) + (p - 1) * (c.forward + c.input - c.weight);
        EXPECT_NEAR(timeline_of("InterleavedZeroBubble", {int(p), 2, int(m)}, c).makespan, expected, 1e-9);
      }
    }
  }
}

// Qi et al. 2023, ZB-V: if F, I and W take equally long, a rank never waits once it has begun.
TEST(Schedules, ZbvWaitsOnlyWhileThePipelineFills) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {2 * p, 2 * p + 1, 6 * p}) {
      const Timeline timeline = timeline_of("ZBVZeroBubble", {p, 2, m});
      EXPECT_EQ(timeline.makespan, 6 * m + p - 1);
      for (int rank = 0; rank < p; ++rank) {
        EXPECT_EQ(timeline.ranks[rank].front().start, rank);
        EXPECT_EQ(timeline.ranks[rank].back().end, rank + 6 * m);
      }
    }
  }
}

// The authors of DualPipe: (p - 1) (F&B + B - 3W) where F = I, F&B the time of a pair.
TEST(Schedules, BubbleOfDualPipeVIsThatOfItsAuthors) {
  for (const double p : {2, 3, 4, 8}) {
    for (const double m : {2 * p, 2 * p + 3, 6 * p}) {
      for (const Costs& c : {Costs{}, Costs{2, 2, 1}, Costs{2, 2, 2}}) {
        const double backward = c.input + c.weight, pair = c.forward + backward;
        const double expected = 2 * m * pair + (p - 1) * (pair + backward - 3 * c.weight);
        EXPECT_NEAR(timeline_of("DualPipeV", {int(p), 2, int(m)}, c).makespan, expected, 1e-9) << p << " " << m;
      }
    }
  }
}

TEST(Schedules, MemoryIsWhatTheDocumentsSay) {
  for (const int p : {2, 4, 8}) {
    const int m = 4 * p;
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(peaks_of("GPipe", {p, 1, m})[rank], m);
      EXPECT_EQ(peaks_of("1F1B", {p, 1, m})[rank], p - rank);
      EXPECT_EQ(peaks_of("LoopedBFS", {p, 3, m})[rank], 3 * m);
      EXPECT_EQ(peaks_of("Interleaved1F1B", {p, 3, m})[rank], 2 * p + 2 * (p - 1 - rank) + 1);
      EXPECT_EQ(peaks_of("InterleavedZeroBubble", {p, 3, m})[rank], 3 * p);
      EXPECT_EQ(peaks_of("ZBVZeroBubble", {p, 2, m})[rank], 2 * p);
      EXPECT_EQ(peaks_of("DualPipeV", {p, 2, m})[rank], 2 * p + 1);
    }
  }
}

TEST(Schedules, TablesReadAsInThePapers) {
  EXPECT_EQ(to_csv(build_table(find_schedule("1F1B"), {2, 1, 3})),
            "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(to_csv(build_table(find_schedule("LoopedBFS"), {2, 2, 2})),
            "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0\n1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\n");
  EXPECT_EQ(to_csv(build_table(find_schedule("DualPipeV"), {1, 2, 3})),
            "0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,(0F2;1B1)OVERLAP_F_B,(1F2;0B1)OVERLAP_F_B,1B2,0I2,0W2\n");
}

}  // namespace
}  // namespace titanium::schedule
