#include "titanium/ops/documents.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

std::vector<int32_t> whole_boundaries(std::span<const int64_t> tokens, int64_t seq_len, int64_t eos_id) {
  std::vector<int32_t> boundaries = {0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool row_ends = static_cast<int64_t>(i + 1) % seq_len == 0;
    if (tokens[i] == eos_id || row_ends) boundaries.push_back(static_cast<int32_t>(i + 1));
  }
  return boundaries;
}

// Appends the documents of the tokens [first, last), which follow those that are there already.
void append_chunk(Documents& documents, const std::vector<int32_t>& whole, int64_t first, int64_t last) {
  auto next = std::upper_bound(whole.begin(), whole.end(), first);
  documents.continued.push_back({first - *std::prev(next), std::min<int64_t>(*next, last) - first});
  const int64_t shift = documents.boundaries.back() - first;
  for (; *next < last; ++next) documents.boundaries.push_back(static_cast<int32_t>(*next + shift));
  documents.boundaries.push_back(static_cast<int32_t>(last + shift));
}

}  // namespace

DocumentsPtr find_documents(std::span<const int64_t> tokens, int64_t seq_len, int64_t eos_id, Device device,
                            const SequenceShare& share) {
  const auto total = static_cast<int64_t>(tokens.size());
  TI_ASSERT(seq_len > 0 && total % seq_len == 0 && seq_len % share.chunks() == 0, "{} tokens in rows of {}", total,
            seq_len);
  const std::vector<int32_t> whole = whole_boundaries(tokens, seq_len, eos_id);
  const int64_t length = seq_len / share.chunks();
  Documents documents;
  documents.boundaries = {0};
  for (int64_t row = 0; row < total; row += seq_len) {
    for (const int64_t chunk : chunks_of(share, share.rank)) {
      append_chunk(documents, whole, row + chunk * length, row + (chunk + 1) * length);
    }
  }
  for (size_t i = 0; i + 1 < documents.boundaries.size(); ++i) {
    documents.longest = std::max<int64_t>(documents.longest, documents.boundaries[i + 1] - documents.boundaries[i]);
  }
  if (!device.is_cpu()) {
    documents.boundaries_on_device = at::tensor(documents.boundaries, at::kInt).to(device, /*non_blocking=*/true);
  }
  return std::make_shared<const Documents>(std::move(documents));
}

}  // namespace titanium::ops
