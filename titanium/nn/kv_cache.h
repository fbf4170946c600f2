// What a generation keeps of the tokens that it has seen, per layer: keys and values, or one latent for both.
#pragma once

#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::nn {

// What one layer keeps of a token.
struct CacheShape {
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;  // 0: values are made of what stands for the keys
  int64_t window = 0;     // a token sees so many tokens, itself included, and older ones are dropped; 0: all are kept
};

class KvCache {
 public:
  KvCache(const std::vector<CacheShape>& layers, int64_t batch, int64_t max_tokens, Dtype dtype, Device device);

  struct View {
    Tensor k_BSKE;
    Tensor v_BSKV;  // undefined where the layer keeps no values
  };
  // Writes the keys and values of the new tokens after the `length()` known ones and returns all of them; those of a
  // layer with a window from the first one on that a new token sees.
  View append(int64_t layer, const Tensor& k_BSKE, const Tensor& v_BSKV = {});

  // To be called once all layers have appended.
  void advance(int64_t tokens) { length_ += tokens; }
  int64_t length() const { return length_; }
  int64_t max_tokens() const { return max_tokens_; }
  int64_t bytes() const;  // of all layers, as they are now

 private:
  Tensor store(Tensor& cache, const Tensor& fresh, int64_t window) const;

  std::vector<CacheShape> layers_;
  int64_t max_tokens_;
  std::vector<Tensor> keys_, values_;  // with a window the last tokens alone, which grow up to it
  int64_t length_ = 0;
};

}  // namespace titanium::nn
