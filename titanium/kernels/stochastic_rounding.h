// Note [Stochastic rounding]
// A float lies between two neighbouring bfloat16 numbers. Adding a uniform 16-bit number to the float's bits and
// cutting off the lower 16 takes the one away from zero with probability (distance from the other) / (distance between
// the two), so the expectation is the float. Numbers that are bfloat16 already stay. The random bits are a function of
// a key and of the element's number (counter_random.h), four elements to each 64 bits, so that any cut of a tensor
// rounds alike. An update with number n takes the tensor's key + n: no two updates share bits, and those of key + 0
// are left to initial weights.
#pragma once

#include <cstdint>
#include <cstring>

#include "titanium/kernels/counter_random.h"

namespace titanium::kernels {

// The 16 bits of element `index` out of random_bits(key, index / 4).
TI_HOST_DEVICE inline uint32_t rounding_bits(uint64_t bits_of_four, uint64_t index) {
  return static_cast<uint32_t>(bits_of_four >> (16 * (index & 3))) & 0xFFFFU;
}

// Returns the bits of the bfloat16. Infinities stay what they are, a NaN stays a NaN; a finite number can round to
// infinity only beyond the largest bfloat16.
TI_HOST_DEVICE inline uint16_t round_stochastically(float value, uint32_t random16) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7F800000U) == 0x7F800000U)
    return static_cast<uint16_t>(bits >> 16 | ((bits & 0xFFFFU) != 0 ? 0x40U : 0U));
  return static_cast<uint16_t>((bits + random16) >> 16);
}

}  // namespace titanium::kernels
