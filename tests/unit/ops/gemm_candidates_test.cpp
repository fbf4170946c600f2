#include "titanium/ops/linear/gemm_candidates.h"

#include <gtest/gtest.h>

namespace titanium::ops {
namespace {

using Candidates = std::vector<size_t>;

TEST(GemmCandidates, TheMedianIsNotMovedByAFirstCallThatLoadsTheAlgorithm) {
  const StepTime time = step_time({5000, 52, 50});
  EXPECT_EQ(time.samples, 3);
  EXPECT_EQ(time.median_us, 52);
  EXPECT_EQ(step_time({}).samples, 0);
}

TEST(GemmCandidates, TheFastestIsAmongThoseThatHadATurn) {
  EXPECT_EQ(fastest_candidate({{9, 70}, {9, 50}, {0, 0}, {9, 50}}), 1);
  EXPECT_EQ(fastest_candidate({{0, 0}, {1, 80}}), 1);
}

TEST(GemmCandidates, TheFirstTheFastestOfTheStepsAndTheBestFourOfShortLoopsAreFinalists) {
  EXPECT_EQ(finalists({90, 50, 60, 80, 40, 30, 70}, 3), (Candidates{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(finalists({30, 50, 60, 80, 40, 30, 70}, 5), (Candidates{0, 1, 4, 5}));
  EXPECT_EQ(finalists({50, 40}, 0), (Candidates{0, 1}));
  EXPECT_EQ(finalists({50}, 0), (Candidates{0}));
}

}  // namespace
}  // namespace titanium::ops
