// Which source the samples of a mix come from.
//
// Note [Choice of sources]
// Sample i of the run is sample (turn t, stream s) with i = t S + s. Its source
// is a function of t and s alone: with 64-bit numbers that wrap around, x =
// offset(s) + t g, where the offsets of the streams divide the circle evenly in
// bit-reversed order and g is 2^64 divided by the golden ratio; the source is
// the first k with x < W_k, where W are the cumulative weights, scaled to 2^64.
// Nothing is drawn and nothing is remembered, so any reader finds the source of
// any sample, and a run that goes on does so with other weights if it is given
// some. The x of a batch, of a stream over time, and of all samples so far are
// spread evenly over the circle. So a batch of a power of two samples that
// divides S has each source within one sample of its share, and so have all
// samples together but for a few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace titanium::data {

// From sample `first` of the run on, each source has a share of the samples
// that is proportional to its weight.
struct MixturePiece {
  int64_t first = 0;
  std::vector<double> weights;

  bool operator==(const MixturePiece&) const = default;
};

// Immutable.
class Mixture {
 public:
  // `pieces` ascend from sample 0 on; each has a weight of at least 0 for every
  // source and some weight above 0.
  Mixture(std::vector<MixturePiece> pieces, int64_t streams);

  // The source of sample (turn, stream) among those that are not in `ended`;
  // the number of sources when all of its weight has ended. About 10 ns.
  size_t choose(int64_t turn, int64_t stream, const std::vector<bool>& ended) const;
  size_t sources() const { return pieces_[0].weights.size(); }

 private:
  std::vector<MixturePiece> pieces_;
  int64_t streams_;
  std::vector<uint64_t> offsets_;              // of each stream
  std::vector<std::vector<uint64_t>> bounds_;  // of each piece, while no source has ended
};

}  // namespace titanium::data
