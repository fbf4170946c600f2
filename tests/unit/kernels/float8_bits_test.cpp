#include "titanium/kernels/hip/float8_bits.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace titanium::kernels::hip {
namespace {

// The value of a code by the definition of the format.
double value_of(int code, const Float8Layout& layout) {
  const int mantissa = code & ((1 << layout.mantissa_bits) - 1), exponent = code >> layout.mantissa_bits;
  const double digits = std::ldexp(mantissa, -layout.mantissa_bits);
  return exponent == 0 ? std::ldexp(digits, 1 - layout.bias) : std::ldexp(1 + digits, exponent - layout.bias);
}

// The nearest finite number by looking at all of them; of two, the one with an even code.
int nearest(double magnitude, const Float8Layout& layout) {
  int best = 0;
  for (int code = 1; code <= layout.largest; ++code) {
    const double here = std::abs(value_of(code, layout) - magnitude),
                 there = std::abs(value_of(best, layout) - magnitude);
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Float8Bits, AreThoseOfTheNearestNumber) {
  std::mt19937 random(7);
  for (const Float8Layout& layout : {kE4m3Layout, kE5m2Layout}) {
    for (int code = 0; code <= layout.largest; ++code) {
      const auto exact = static_cast<float>(value_of(code, layout));
      EXPECT_EQ(float8_bits(exact, layout), code);
      EXPECT_EQ(float8_bits(-exact, layout), code | 0x80);
      if (code == layout.largest) continue;
      const auto middle = static_cast<float>((value_of(code, layout) + value_of(code + 1, layout)) / 2);
      EXPECT_EQ(float8_bits(middle, layout), code % 2 == 0 ? code : code + 1);
      EXPECT_EQ(float8_bits(std::nextafter(middle, INFINITY), layout), code + 1);
      EXPECT_EQ(float8_bits(std::nextafter(middle, 0.0F), layout), code);
    }
    for (int i = 0; i < 20'000; ++i) {
      const float value =
          std::ldexp(std::uniform_real_distribution<float>(0.5F, 1)(random), static_cast<int>(random() % 50) - 25);
      EXPECT_EQ(float8_bits(value, layout), nearest(value, layout)) << value;
    }
  }
}

TEST(Float8Bits, AreBoundedAndKeepWhatIsNotANumber) {
  for (const Float8Layout& layout : {kE4m3Layout, kE5m2Layout}) {
    for (const float large : {1e6F, 3e38F, INFINITY}) {
      EXPECT_EQ(float8_bits(large, layout), layout.largest);
      EXPECT_EQ(float8_bits(-large, layout), layout.largest | 0x80);
    }
    EXPECT_EQ(float8_bits(NAN, layout) & 0x7F, 0x7F);
    EXPECT_EQ(float8_bits(1e-30F, layout), 0);
    EXPECT_EQ(float8_bits(-1e-45F, layout), 0x80);
  }
}

}  // namespace
}  // namespace titanium::kernels::hip
