// Random damage, repeatable by default and long on request.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace titanium::test {

// Calls round(random) `rounds` times, with the same random numbers in every run. With TITANIUM_FUZZ_SECONDS=600 it goes
// on for that long, from a seed of its own, and prints how many rounds that were. A failure names the seed.
template <typename Round>
void fuzz(int64_t rounds, const Round& round) {
  const char* asked = std::getenv("TITANIUM_FUZZ_SECONDS");
  const uint32_t seed = asked != nullptr ? std::random_device{}() : 20260131;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  if (asked == nullptr) {
    for (int64_t i = 0; i < rounds; ++i) round(random);
    return;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(asked));
  int64_t done = 0;
  for (; std::chrono::steady_clock::now() < end; ++done) round(random);
  fmt::print("{} rounds with seed {}\n", done, seed);
}

}  // namespace titanium::test
