#include "titanium/ops/attention/key_value_bundle.h"

#include <ATen/ops/cat.h>

#include "titanium/base/error.h"

namespace titanium::ops {

std::vector<int64_t> chunks_of_bundle(const SequenceShare& share, std::vector<int64_t> ranks) {
  std::ranges::sort(ranks);
  std::vector<int64_t> chunks;
  for (int64_t slot = share.chunks_per_rank() - 1; slot >= 0; --slot) {
    for (const int64_t rank : ranks) chunks.push_back(chunks_of(share, rank)[slot]);
  }
  return chunks;
}

KeyValuePart make_bundle(const SequenceShare& share, const std::vector<int64_t>& ranks,
                         const std::vector<Tensor>& parts) {
  KeyValuePart bundle{{}, chunks_of_bundle(share, ranks)};
  const int64_t length = parts[0].size(1) / share.chunks_per_rank();
  std::vector<Tensor> rows(bundle.chunks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::vector<int64_t> own = chunks_of(share, ranks[i]);
    for (size_t slot = 0; slot < own.size(); ++slot) {
      rows[std::ranges::find(bundle.chunks, own[slot]) - bundle.chunks.begin()] =
          parts[i].narrow(1, static_cast<int64_t>(slot) * length, length);
    }
  }
  bundle.kv_BTW = at::cat(rows, 1);
  return bundle;
}

Tensor part_of_bundle(const SequenceShare& share, const std::vector<int64_t>& ranks, const Tensor& bundle,
                      int64_t rank) {
  const std::vector<int64_t> chunks = chunks_of_bundle(share, ranks);
  const int64_t length = bundle.size(1) / static_cast<int64_t>(chunks.size());
  std::vector<Tensor> rows;
  for (const int64_t chunk : chunks_of(share, rank)) {
    rows.push_back(bundle.narrow(1, (std::ranges::find(chunks, chunk) - chunks.begin()) * length, length));
  }
  return at::cat(rows, 1);
}

int64_t bundle_width(int64_t ranks, int64_t tokens_of_rank, int64_t keys) {
  int64_t width = 1;
  while (width * tokens_of_rank < keys && ranks % (2 * width) == 0 && 2 * width < ranks) width *= 2;
  return width;
}

std::vector<int64_t> ranks_of_bundle(const SequenceShare& share, int64_t width, int64_t step) {
  TI_ASSERT(share.ranks % width == 0, "bundles of {} of {} ranks", width, share.ranks);
  std::vector<int64_t> ranks;
  for (int64_t i = step * width; i < (step + 1) * width; ++i) {
    ranks.push_back((share.rank - i + share.ranks) % share.ranks);
  }
  return ranks;
}

}  // namespace titanium::ops
