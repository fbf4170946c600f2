#include "titanium/ops/sequence_share.h"

#include <ATen/ops/cat.h>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

int64_t chunk_length(int64_t seq_len, const SequenceShare& share) {
  TI_ASSERT(seq_len % share.chunks() == 0, "{} tokens in {} chunks", seq_len, share.chunks());
  return seq_len / share.chunks();
}

}  // namespace

std::vector<int64_t> chunks_of(const SequenceShare& share, int64_t rank) {
  if (!share.head_and_tail) return {rank};
  return {rank, share.chunks() - 1 - rank};
}

Tensor share_of(const Tensor& x, int64_t dim, const SequenceShare& share) {
  if (share.ranks == 1) return x;
  const int64_t length = chunk_length(x.size(dim), share);
  std::vector<Tensor> chunks;
  for (const int64_t chunk : chunks_of(share, share.rank)) chunks.push_back(x.narrow(dim, chunk * length, length));
  return at::cat(chunks, dim);
}

std::vector<int64_t> share_of(std::span<const int64_t> tokens, int64_t seq_len, const SequenceShare& share) {
  const auto length = static_cast<size_t>(chunk_length(seq_len, share));
  std::vector<int64_t> rows;
  rows.reserve(tokens.size() / share.ranks);
  for (size_t row = 0; row < tokens.size(); row += seq_len) {
    for (const int64_t chunk : chunks_of(share, share.rank)) {
      const auto part = tokens.subspan(row + chunk * length, length);
      rows.insert(rows.end(), part.begin(), part.end());
    }
  }
  return rows;
}

}  // namespace titanium::ops
