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

DocumentsPtr finished(Documents documents, Device device) {
  for (size_t i = 0; i + 1 < documents.boundaries.size(); ++i) {
    documents.longest = std::max<int64_t>(documents.longest, documents.boundaries[i + 1] - documents.boundaries[i]);
  }
  if (!device.is_cpu()) {
    documents.boundaries_on_device = copy_to_device(std::span<const int32_t>(documents.boundaries), device);
  }
  return std::make_shared<const Documents>(std::move(documents));
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
  return finished(std::move(documents), device);
}

DocumentsPtr cut_documents(const DocumentsPtr& documents, int64_t chunk, int64_t rows, int64_t tokens, Device device,
                           const SequenceShare& share) {
  const std::vector<int64_t> stretches = chunks_of(share, share.rank);
  const auto per_row = static_cast<int64_t>(stretches.size());
  const int64_t length = tokens / per_row;  // of a stretch of neighbouring tokens
  Documents cut;
  for (int64_t i = 0; i < rows * per_row; ++i) {
    const int64_t first = stretches[i % per_row] * length, inside = first % chunk;  // in the whole sequence
    const Documents::Continued whole = documents ? documents->continued[i] : Documents::Continued{first, length};
    cut.continued.push_back({std::min(whole.before, inside), std::min(whole.inside, chunk - inside)});
    cut.boundaries.push_back(static_cast<int32_t>(i * length));
    for (int64_t at = chunk - inside; at < length; at += chunk) {
      cut.boundaries.push_back(static_cast<int32_t>(i * length + at));
    }
  }
  cut.boundaries.push_back(static_cast<int32_t>(rows * tokens));
  if (documents)
    cut.boundaries.insert(cut.boundaries.end(), documents->boundaries.begin(), documents->boundaries.end());
  std::ranges::sort(cut.boundaries);
  cut.boundaries.erase(std::ranges::unique(cut.boundaries).begin(), cut.boundaries.end());
  return finished(std::move(cut), device);
}

}  // namespace titanium::ops
