// A block of a model as the memory plan sees it: what it may keep from its forward for its backward (the saved
// activations).
#pragma once

#include <string_view>
#include <vector>

#include "titanium/nn/module.h"

namespace titanium::nn {

struct SaveLevel {
  std::string_view name;
  int64_t kept_bytes = 0;      // per token, from the forward to the backward
  int64_t backward_bytes = 0;  // per token, that the backward needs beside: temporaries, and what is computed once more
  // The parts of both that hold rows of experts, when the experts on this rank get their share of all rows.
  int64_t kept_row_bytes = 0;
  int64_t backward_row_bytes = 0;
  // Copies of weights that the backward makes and drops, however many tokens there are; and what it needs beside them,
  // per token, as long as they are there. The gradients of these weights come later.
  int64_t copied_weights = 0;
  int64_t backward_bytes_beside_copies = 0;
};

// A block's own list, from the level that keeps all that its operators need to the one that keeps only its input.
// The results are the same bits at every level.
using SaveLevels = std::vector<SaveLevel>;

class Block : public Module {
 public:
  // What it can do when it computes in that dtype. Never empty.
  virtual SaveLevels levels(Dtype compute) const = 0;
  // How many times their share of rows the experts here get at most.
  virtual double largest_load() const { return 1; }

  size_t level = 0;  // an index into levels()
};

}  // namespace titanium::nn
