// Keys and values of the tokens that a generation has seen, per layer.
#pragma once

#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::nn {

class KvCache {
 public:
  KvCache(int64_t layers, int64_t batch, int64_t max_tokens, int64_t kv_heads, int64_t head_dim, Dtype dtype,
          Device device);

  struct View {
    Tensor k_BSKE;
    Tensor v_BSKE;
  };
  // Writes the keys and values of the new tokens behind the `length()` known ones and returns all of them.
  View append(int64_t layer, const Tensor& k_BSKE, const Tensor& v_BSKE);

  // To be called once all layers have appended.
  void advance(int64_t tokens) { length_ += tokens; }
  int64_t length() const { return length_; }
  int64_t max_tokens() const { return keys_.at(0).size(1); }

 private:
  std::vector<Tensor> keys_, values_;
  int64_t length_ = 0;
};

}  // namespace titanium::nn
