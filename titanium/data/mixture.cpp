#include "titanium/data/mixture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t reverse_bits(uint64_t value) {
  uint64_t reversed = 0;
  for (int i = 0; i < 64; ++i) reversed |= (value >> i & 1) << (63 - i);
  return reversed;
}

// Powers of two are reversed bit by bit; other numbers of streams are stepped
// through by a number near streams / phi that has no divisor in common with
// them.
std::vector<uint64_t> offsets_of(int64_t streams) {
  const auto count = static_cast<uint64_t>(streams);
  std::vector<uint64_t> offsets(count);
  uint64_t step = std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(count) * 0.6180339887498949));
  while (std::gcd(step, count) != 1) ++step;
  for (uint64_t s = 0; s < count; ++s) {
    const uint64_t place = s * step % count;
    offsets[s] = std::has_single_bit(count)
                     ? reverse_bits(s)
                     : static_cast<uint64_t>((static_cast<unsigned __int128>(place) << 64U) / count);
  }
  return offsets;
}

// Cumulative weights as parts of 2^64; the last source that has a weight takes
// what rounding leaves.
std::vector<uint64_t> bounds_of(const std::vector<double>& weights, const std::vector<bool>& ended) {
  double total = 0;
  for (size_t k = 0; k < weights.size(); ++k) total += ended[k] ? 0 : weights[k];
  std::vector<uint64_t> bounds(weights.size());
  double sum = 0;
  for (size_t k = 0; k < weights.size(); ++k) {
    sum += ended[k] ? 0 : weights[k];
    const double share = total > 0 ? sum / total : 0;
    bounds[k] = share < 1 ? static_cast<uint64_t>(std::ldexp(share, 64)) : ~uint64_t{0};
  }
  return bounds;
}

}  // namespace

Mixture::Mixture(std::vector<MixturePiece> pieces, int64_t streams)
    : pieces_(std::move(pieces)), streams_(streams), offsets_(offsets_of(streams)) {
  TI_ASSERT(!pieces_.empty() && pieces_[0].first == 0);
  for (const MixturePiece& piece : pieces_) {
    bounds_.push_back(bounds_of(piece.weights, std::vector<bool>(piece.weights.size())));
    TI_CHECK(bounds_.back().back() != 0,
             "training.sources: all weights are 0 from sample {} of the run "
             "on. Give at least one source a weight.",
             piece.first);
  }
}

size_t Mixture::choose(int64_t turn, int64_t stream, const std::vector<bool>& ended) const {
  const int64_t sample = turn * streams_ + stream;
  const auto after = std::ranges::upper_bound(pieces_, sample, {}, &MixturePiece::first);
  const auto piece = static_cast<size_t>(after - pieces_.begin()) - 1;
  const bool whole = std::ranges::find(ended, true) == ended.end();
  const std::vector<uint64_t> left = whole ? std::vector<uint64_t>() : bounds_of(pieces_[piece].weights, ended);
  const std::vector<uint64_t>& bounds = whole ? bounds_[piece] : left;
  const uint64_t x = offsets_[static_cast<size_t>(stream)] + static_cast<uint64_t>(turn) * kGolden;
  const size_t found = static_cast<size_t>(std::ranges::upper_bound(bounds, x) - bounds.begin());
  if (found < bounds.size()) return found;
  // x is the largest number, or nothing has a weight.
  return bounds.back() == 0 ? bounds.size()
                            : static_cast<size_t>(std::ranges::find(bounds, bounds.back()) - bounds.begin());
}

}  // namespace titanium::data
