// A quick 64-bit hash of bytes, for tables in memory and for checks of files that were not damaged on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace titanium::data {

inline uint64_t mix_bits(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0x9E3779B97F4A7C15u) {
  const auto load = [](const char* at, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, at, count);
    return word;
  };
  uint64_t state = bytes.size() * 0xD6E8FEB86659FD93u;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left > 8; left -= 8, at += 8) state = mix_bits(state ^ load(at, 8), seed);
  return mix_bits(state ^ load(at, left), seed ^ 0xA0761D6478BD642Fu);
}

}  // namespace titanium::data
