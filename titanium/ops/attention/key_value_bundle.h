// Keys and values of several ranks as one part.
#pragma once

#include "titanium/ops/attention/context_exchange.h"

namespace titanium::ops {

// Note [One stretch of visible chunks]
// The chunks of a bundle lie with all tails first, then all heads, each in order of ranks. Tails descend (rank p has
// chunk 2n-1-p) and heads ascend, so what a tail sees is one stretch: the tails of higher ranks and all heads. What a
// head sees is one as well: the heads of lower ranks. So attention is one call per chunk of queries.
std::vector<int64_t> chunks_of_bundle(const SequenceShare& share, std::vector<int64_t> ranks);

// The parts of `ranks`, [B, s, W] each, as one.
KeyValuePart make_bundle(const SequenceShare& share, const std::vector<int64_t>& ranks,
                         const std::vector<Tensor>& parts);
// One rank's part of what lies as the bundle of `ranks` does.
Tensor part_of_bundle(const SequenceShare& share, const std::vector<int64_t>& ranks, const Tensor& bundle,
                      int64_t rank);

// Note [Bundles in a ring]
// Every part that is attended costs the merging of one more result and the reading of all queries once more, and
// devices are slower with few keys. So where a rank has few tokens, a ring passes on the parts of several neighbours at
// a time: as many as have `keys` tokens together, if they divide the ring into at least two bundles. In step i rank r
// has the bundle of the ranks r - i w, r - i w - 1, ... r - i w - (w-1).
constexpr int64_t kKeysAtOnce = 16384;
int64_t bundle_width(int64_t ranks, int64_t tokens_of_rank, int64_t keys = kKeysAtOnce);
std::vector<int64_t> ranks_of_bundle(const SequenceShare& share, int64_t width, int64_t step);

}  // namespace titanium::ops
