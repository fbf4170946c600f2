// Float8 numbers of gfx90a, which has none: the conversions that CUDA's cuda_fp8.h has, with integer arithmetic. Also
// read by the host's compiler, for tests.
#pragma once

#include <cstdint>
#include <cstring>

#include "titanium/kernels/counter_random.h"

namespace titanium::kernels::hip {

struct Float8Layout {
  int mantissa_bits;
  int bias;
  uint8_t largest;  // code of the largest finite number
};
constexpr Float8Layout kE4m3Layout = {3, 7, 0x7E}, kE5m2Layout = {2, 15, 0x7B};

// Rounded to nearest even; what is larger than the largest finite number, infinity included, becomes that number.
TI_HOST_DEVICE inline uint8_t float8_bits(float value, Float8Layout layout) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  const auto sign = static_cast<uint8_t>(word >> 24 & 0x80U);
  const uint32_t magnitude = word & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7FU;  // not a number
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + layout.bias;
  const int dropped = 23 - layout.mantissa_bits + (exponent < 1 ? 1 - exponent : 0);
  if (dropped > 24) return sign;  // less than half of the smallest number
  // A number below the smallest normal one has its leading 1 among the digits.
  const uint32_t digits = exponent < 1 ? (magnitude & 0x7FFFFFU) | 0x800000U : magnitude;
  const uint32_t rounded = (digits + (1U << (dropped - 1)) - 1 + (digits >> dropped & 1U)) >> dropped;
  const uint32_t offset = exponent < 1 ? 0 : static_cast<uint32_t>(127 - layout.bias) << layout.mantissa_bits;
  const uint32_t code = rounded - offset;
  return sign | static_cast<uint8_t>(code > layout.largest ? layout.largest : code);
}

}  // namespace titanium::kernels::hip
