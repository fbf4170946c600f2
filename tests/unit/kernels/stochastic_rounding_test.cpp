#include "titanium/kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <limits>

namespace titanium::kernels {
namespace {

float from_bits(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

TEST(StochasticRounding, TheMeanOverAllBitsIsTheNumber) {
  for (const float value : {0.999F, -3.14159F, 1e-20F, 65504.3F, -1.0000001F}) {
    double sum = 0;
    for (uint32_t bits = 0; bits < 65536; ++bits) sum += from_bits(round_stochastically(value, bits));
    EXPECT_NEAR(sum / 65536, value, 1e-9 * std::abs(value));
  }
}

TEST(StochasticRounding, WhatIsExactStays) {
  for (const float value : {0.0F, 1.0F, -2.5F, 0x1p-130F, std::numeric_limits<float>::infinity()}) {
    for (const uint32_t bits : {0U, 1U, 32768U, 65535U}) EXPECT_EQ(from_bits(round_stochastically(value, bits)), value);
  }
}

TEST(StochasticRounding, ANanStaysANan) {
  const uint32_t smallest = 0x7F800001;
  float value = 0;
  std::memcpy(&value, &smallest, sizeof(value));
  for (const uint32_t bits : {0U, 65535U}) EXPECT_TRUE(std::isnan(from_bits(round_stochastically(value, bits))));
}

TEST(StochasticRounding, ElementsOfFourShareABlockOfBits) {
  EXPECT_EQ(rounding_bits(0x4444333322221111, 0), 0x1111U);
  EXPECT_EQ(rounding_bits(0x4444333322221111, 1002), 0x3333U);
  EXPECT_EQ(rounding_bits(0x4444333322221111, 7), 0x4444U);
}

}  // namespace
}  // namespace titanium::kernels
