// A parameter at Hugging Face: its name, and the order of its rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titanium::models {

struct HuggingFaceTensor {
  std::string name;
  int64_t head_rows = 0;  // rows are permuted inside heads of that many rows, see below; 0: the same order
  std::string stand_in;   // the tensor to take where a folder leaves this one out, because the two are tied; or empty
};

// Rows that lie one after another at Hugging Face, from their row `theirs` on: our rows ours, ours + step, ...
struct RowRun {
  int64_t theirs = 0;
  int64_t ours = 0;
  int64_t step = 1;
  int64_t count = 0;
  bool operator==(const RowRun&) const = default;
};

// Our rows [begin, begin + count) of the tensor, which may begin and end inside a head. Row 2i + j of a head is row
// j * head_rows / 2 + i of that head at Hugging Face.
std::vector<RowRun> row_runs(const HuggingFaceTensor& tensor, int64_t begin, int64_t count);

}  // namespace titanium::models
