// The choice of sources is exact, stateless and starves nobody; orders are
// permutations.
#include "titanium/data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "titanium/data/record_order.h"

namespace titanium::data {
namespace {

const std::vector<double> kWeights = {.40, .44, .03, .02, .10, .01};
const std::vector<bool> kNone(6);

// The largest distance between a count and its share of `samples`.
double largest_error(const std::vector<int64_t>& counts, double samples) {
  double error = 0;
  for (size_t k = 0; k < counts.size(); ++k)
    error = std::max(error, std::abs(static_cast<double>(counts[k]) - kWeights[k] * samples));
  return error;
}

TEST(Mixture, EveryBatchOfAPowerOfTwoIsWithinOneSampleOfItsShares) {
  const Mixture mixture({{.weights = kWeights}}, 256);
  for (const int64_t batch : {8, 64, 256}) {
    std::vector<int64_t> counts(6);
    for (int64_t i = 0; i < 200'000 / batch * batch; ++i) {
      if (i % batch == 0) counts.assign(6, 0);
      ++counts[mixture.choose(i / 256, i % 256, kNone)];
      if (i % batch == batch - 1) {
        ASSERT_LT(largest_error(counts, static_cast<double>(batch)), 1) << i;
      }
    }
  }
}

TEST(Mixture, AllSamplesTogetherAreWithinTenOfTheirSharesAfter2To25) {
  const Mixture mixture({{.weights = kWeights}}, 256);
  std::vector<int64_t> counts(6);
  double worst = 0;
  for (int64_t turn = 0; turn < (1 << 25) / 256; ++turn) {
    for (int64_t stream = 0; stream < 256; ++stream) ++counts[mixture.choose(turn, stream, kNone)];
    worst = std::max(worst, largest_error(counts, static_cast<double>((turn + 1) * 256)));
  }
  EXPECT_LT(worst, 10);
}

TEST(Mixture, NoStreamIsStarvedOfASource) {
  for (const int64_t streams : {1, 12, 96, 256}) {
    const Mixture mixture({{.weights = kWeights}}, streams);
    for (int64_t stream = 0; stream < streams; ++stream) {
      std::vector<int64_t> counts(6);
      constexpr int64_t kTurns = 5000;
      for (int64_t turn = 0; turn < kTurns; ++turn) ++counts[mixture.choose(turn, stream, kNone)];
      ASSERT_LT(largest_error(counts, kTurns), 10) << streams << " streams, stream " << stream;
    }
  }
}

TEST(Mixture, EqualSharesDoNotFollowTheStreams) {
  const Mixture mixture({{.weights = {1, 1}}}, 64);
  for (int64_t stream = 0; stream < 64; ++stream) {
    std::set<size_t> seen;
    for (int64_t turn = 0; turn < 4; ++turn) seen.insert(mixture.choose(turn, stream, {false, false}));
    EXPECT_EQ(seen.size(), 2U) << stream;
  }
}

TEST(Mixture, WeightsChangeAtTheSampleThatTheScheduleNames) {
  const Mixture mixture({{.first = 0, .weights = {1, 0}}, {.first = 100, .weights = {0, 1}}}, 8);
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(mixture.choose(i / 8, i % 8, {false, false}), i < 100 ? 0U : 1U) << i;
}

TEST(Mixture, SourcesThatHaveEndedLeaveTheirTurnsToTheOthers) {
  const Mixture mixture({{.weights = {2, 1, 1}}}, 16);
  std::vector<int64_t> counts(3);
  for (int64_t i = 0; i < 16'000; ++i) ++counts[mixture.choose(i / 16, i % 16, {true, false, false})];
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(static_cast<double>(counts[1]), 8000, 5);
  EXPECT_EQ(mixture.choose(0, 0, {true, true, true}), 3U);
}

TEST(RecordOrder, PermutesEverySize) {
  for (const int64_t size : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    std::set<int64_t> seen;
    for (int64_t place = 0; place < size; ++place) {
      const int64_t record = permuted(place, size, 77);
      ASSERT_GE(record, 0);
      ASSERT_LT(record, size);
      seen.insert(record);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
  }
}

TEST(RecordOrder, SpreadsNeighboursAndDiffersByKey) {
  constexpr int64_t kSize = 10'000;
  double distance = 0;
  int64_t same = 0;
  for (int64_t place = 0; place + 1 < kSize; ++place) {
    distance += std::abs(static_cast<double>(permuted(place + 1, kSize, 5) - permuted(place, kSize, 5)));
    same += permuted(place, kSize, 5) == permuted(place, kSize, 6) ? 1 : 0;
  }
  EXPECT_NEAR(distance / kSize, kSize / 3.0,
              kSize / 50.0);  // as of two random numbers
  EXPECT_LT(same, 10);
}

TEST(RecordOrder, WindowsKeepTheirRecordsAndEpochsDiffer) {
  const RecordOrder order = RecordOrder::shuffled(42, 1, std::nullopt, 100);
  std::set<int64_t> window;
  int64_t moved = 0, differ = 0;
  for (int64_t place = 300; place < 400; ++place) {
    window.insert(order.record(place, 0));
    moved += order.record(place, 0) != place ? 1 : 0;
    differ += order.record(place, 0) != order.record(place, 1) ? 1 : 0;
  }
  EXPECT_EQ(window.size(), 100U);
  EXPECT_EQ(*window.begin(), 300);
  EXPECT_EQ(*window.rbegin(), 399);
  EXPECT_GT(moved, 80);
  EXPECT_GT(differ, 80);
  EXPECT_EQ(RecordOrder().record(17, 3), 17);
}

}  // namespace
}  // namespace titanium::data
