// Documents of tokens that lie ready, as a stream finds them.
#pragma once

#include "titanium/ops/attention/documents.h"

namespace titanium::test {

// Rows and tokens `eos_id` end documents.
inline ops::DocumentsPtr find_documents(std::span<const int64_t> tokens, int64_t seq_len, int64_t eos_id, Device device,
                                        const ops::SequenceShare& share = {}) {
  std::vector<int32_t> starts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool row_starts = static_cast<int64_t>(i) % seq_len == 0;
    if (row_starts || tokens[i - 1] == eos_id) starts.push_back(static_cast<int32_t>(i));
  }
  return ops::make_documents(starts, static_cast<int64_t>(tokens.size()) / seq_len, seq_len, device, share);
}

}  // namespace titanium::test
