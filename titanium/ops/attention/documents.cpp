#include "titanium/ops/attention/documents.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/tensor/host_copy.h"

namespace titanium::ops {
namespace {

// Appends the documents of the tokens [first, last), which follow those that are there already.
void append_chunk(Documents& documents, const std::vector<int32_t>& whole, int64_t first, int64_t last) {
  auto next = std::upper_bound(whole.begin(), whole.end(), first);
  documents.continued.push_back({first - *std::prev(next), std::min<int64_t>(*next, last) - first});
  const int64_t shift = documents.boundaries.back() - first;
  for (; *next < last; ++next) documents.boundaries.push_back(static_cast<int32_t>(*next + shift));
  documents.boundaries.push_back(static_cast<int32_t>(last + shift));
}

}  // namespace

DocumentsPtr make_documents(std::span<const int32_t> starts, int64_t rows, int64_t seq_len, Device device,
                            const SequenceShare& share) {
  const int64_t total = rows * seq_len;
  TI_ASSERT(seq_len % share.chunks() == 0 && starts.size() >= static_cast<size_t>(rows) && starts[0] == 0,
            "{} documents in {} rows of {} tokens", starts.size(), rows, seq_len);
  std::vector<int32_t> whole(starts.begin(), starts.end());
  whole.push_back(static_cast<int32_t>(total));
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
    documents.boundaries_on_device = copy_to_device(std::span<const int32_t>(documents.boundaries), device);
  }
  return std::make_shared<const Documents>(std::move(documents));
}

}  // namespace titanium::ops
