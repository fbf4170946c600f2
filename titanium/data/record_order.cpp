#include "titanium/data/record_order.h"

#include <fmt/format.h>

#include <bit>

namespace titanium::data {
namespace {

constexpr int kRounds = 6;

}  // namespace

uint64_t mixed_bits(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ value >> 30U) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27U) * 0x94D049BB133111EB;
  return value ^ value >> 31U;
}

int64_t permuted(int64_t place, int64_t size, uint64_t key) {
  if (size <= 1) return place;
  const auto half = (static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(size - 1))) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(place);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mixed_bits(right ^ mixed_bits(key + static_cast<uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(value);
}

RecordOrder RecordOrder::shuffled(int64_t seed, uint64_t key, std::optional<int64_t> records, int64_t window) {
  RecordOrder order;
  order.shuffled_ = true;
  order.key_ = mixed_bits(static_cast<uint64_t>(seed)) ^ key;
  order.records_ = records.value_or(0);
  order.window_ = records ? 0 : window;
  order.name_ = records ? fmt::format("shuffled with seed {}", seed)
                        : fmt::format("shuffled with seed {} in windows of {} records", seed, window);
  return order;
}

int64_t RecordOrder::record(int64_t place, int64_t epoch, int64_t lane) const {
  if (!shuffled_) return place;
  uint64_t key = key_ ^ mixed_bits(static_cast<uint64_t>(epoch) + 0x5EED);
  if (lane > 0) key ^= mixed_bits(static_cast<uint64_t>(lane) + 0x1A9E);
  if (window_ == 0) return place < records_ ? permuted(place, records_, key) : place;
  const int64_t begin = *window_begin(place);
  return begin + permuted(place - begin, window_, key ^ mixed_bits(static_cast<uint64_t>(begin)));
}

}  // namespace titanium::data
