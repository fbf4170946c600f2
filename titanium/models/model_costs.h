// What a model costs, for plans and metrics. What its blocks keep, they say themselves: nn/block.h.
#pragma once

#include <cstdint>

namespace titanium::models {

struct ModelSize {
  int64_t parameters = 0;
  double flops_per_token = 0;  // of a training step, as torchtitan counts them
};

class ModelCosts {
 public:
  virtual ~ModelCosts() = default;
  virtual ModelSize size(int64_t seq_len) const = 0;  // of the whole model
  // Bytes that the head and its loss need for that many tokens, where an element of its weight has so many
  // bytes; 0 where there is no head.
  virtual int64_t head_bytes(int64_t tokens, int64_t weight_element) const = 0;
  // Elements of the keys and values that a block has per token, in the block that has most.
  virtual int64_t key_value_width() const = 0;
};

}  // namespace titanium::models
