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

TEST(GemmCandidates, WithinATenthOfTheFastestAreNearAndTheFastestComesFirst) {
  EXPECT_EQ(near_candidates({{9, 109}, {9, 100}, {9, 111}, {9, 104}}), (Candidates{1, 0, 3}));
  EXPECT_EQ(near_candidates({{9, 100}, {9, 111}}), (Candidates{0}));
}

TEST(GemmCandidates, TooFewSamplesLeaveNoCandidateOut) {
  EXPECT_EQ(near_candidates({{3, 100}, {2, 500}, {3, 500}, {0, 0}}), (Candidates{0, 1, 3}));
}

}  // namespace
}  // namespace titanium::ops
