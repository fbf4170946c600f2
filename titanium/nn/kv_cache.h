// Keys and values of the tokens that a generation has seen, per layer.
#pragma once

#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::nn {

// What one layer keeps of a token.
struct KeyValueShape {
  int64_t heads = 0;
  int64_t head_dim = 0;
};

class KvCache {
 public:
  KvCache(const std::vector<KeyValueShape>& layers, int64_t batch, int64_t max_tokens, Dtype dtype, Device device);

  struct View {
    Tensor k_BSKE;
    Tensor v_BSKE;
  };
  // Writes the keys and values of the new tokens after the `length()` known ones and returns all of them.
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
