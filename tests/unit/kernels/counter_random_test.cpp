#include "titanium/kernels/counter_random.h"

#include <bit>

#include "titanium/kernels/fill_normal.h"

namespace titanium::kernels {
namespace {

TEST(CounterRandom, PhiloxMatchesThePublishedKnownAnswer) {
  // Random123's known answer for philox4x32-10 with counter 0 and key 0.
  EXPECT_EQ(random_bits(0, 0), 0xe169c58d6627e8d5);
  EXPECT_EQ(random_bits(0, 1), 0x9b00dbd8bc57ac4c);
}

TEST(CounterRandom, LogarithmIsAccurateOverTheWholeRange) {
  for (double x = 0x1p-60; x < 1; x = x * 1.37 + 0x1p-61)
    EXPECT_NEAR(exact_log(x), std::log(x), 1e-15 * std::abs(std::log(x)) + 1e-16);
}

TEST(CounterRandom, QuantileInvertsTheDistributionFunction) {
  for (const double p : {1e-15, 1e-9, 1e-4, 0.01, 0.07, 0.3, 0.5, 0.77, 0.95, 0.9999, 1 - 1e-9}) {
    const double x = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)), p, 1e-13 * p + 1e-16) << p;
  }
}

TEST(CounterRandom, MomentsAndCutOffsFollowTheDistribution) {
  constexpr int64_t kCount = 1 << 20;
  const NormalDistribution distribution = truncated_normal(0.5, 1.5);  // cut at 3 standard deviations
  double sum = 0, squares = 0, largest = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double value = sample_normal(distribution, 42, i);
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  // A normal cut at 3 sigma has variance 1 - 6 phi(3) / (2 Phi(3) - 1) = 0.97334.
  EXPECT_NEAR(sum / kCount, 0, 4 * 0.5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 0.25 * 0.97334, 0.25 * 4 * std::sqrt(2.0 / kCount));
  EXPECT_LE(largest, 1.5);
  EXPECT_GT(largest, 1.4);
}

TEST(CounterRandom, NeighbouringKeysAndIndicesAreUncorrelated) {
  constexpr int64_t kCount = 1 << 18;
  const NormalDistribution distribution = truncated_normal(1, 1e6);
  double neighbours = 0, keys = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double value = sample_normal(distribution, 1, i);
    neighbours += value * sample_normal(distribution, 1, i + 1);
    keys += value * sample_normal(distribution, 2, i);
  }
  EXPECT_LT(std::abs(neighbours) / kCount, 4 / std::sqrt(kCount));
  EXPECT_LT(std::abs(keys) / kCount, 4 / std::sqrt(kCount));
}

TEST(FillNormal, ABoxHoldsTheSameValuesAsTheWhole) {
  std::vector<float> whole(6 * 10), box(3 * 4);
  const NormalDistribution distribution = truncated_normal(0.02, 2);
  fill_normal_on_cpu({whole.data(), false, 6, 10, 0, 10, 7, distribution});
  fill_normal_on_cpu({box.data(), false, 3, 4, 2 * 10 + 5, 10, 7, distribution});
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 4; ++column) EXPECT_EQ(box[row * 4 + column], whole[(row + 2) * 10 + column + 5]);
  }
}

TEST(FillNormal, Bfloat16IsTheNearestNumberAndTheEvenOneOfTwo) {
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> exact(kCount);
  std::vector<uint16_t> rounded(kCount);
  const NormalDistribution distribution = truncated_normal(0.02, 2);
  fill_normal_on_cpu({exact.data(), false, 1, kCount, 0, kCount, 7, distribution});
  fill_normal_on_cpu({rounded.data(), true, 1, kCount, 0, kCount, 7, distribution});
  int ties = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(exact[i]), below = bits >> 16, rest = bits & 0xFFFFU;
    const bool tie = rest == 0x8000U, up = tie ? below % 2 == 1 : rest > 0x8000U;
    ties += tie && below % 2 == 0;
    ASSERT_EQ(rounded[i], below + up) << i;
  }
  EXPECT_GT(ties, 0);  // or the even number has not been asked for
}

}  // namespace
}  // namespace titanium::kernels
