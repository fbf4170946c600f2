#include "titanium/models/hugging_face_tensor.h"

#include <algorithm>

namespace titanium::models {

std::vector<RowRun> row_runs(const HuggingFaceTensor& tensor, int64_t begin, int64_t count) {
  if (tensor.head_rows == 0) return {{.theirs = begin, .ours = begin, .step = 1, .count = count}};
  std::vector<RowRun> runs;
  const int64_t end = begin + count, head_rows = tensor.head_rows;
  for (int64_t head = begin / head_rows * head_rows; head < end; head += head_rows) {
    const int64_t first = std::max(begin, head) - head, last = std::min(end, head + head_rows) - head;
    for (const int64_t j : {0, 1}) {
      const int64_t i = (first - j + 1) / 2, i_end = (last - j + 1) / 2;
      if (i >= i_end) continue;
      runs.push_back({.theirs = head + j * head_rows / 2 + i, .ours = head + 2 * i + j, .step = 2, .count = i_end - i});
    }
  }
  return runs;
}

}  // namespace titanium::models
