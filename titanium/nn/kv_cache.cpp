#include "titanium/nn/kv_cache.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium::nn {

KvCache::KvCache(const std::vector<CacheShape>& layers, int64_t batch, int64_t max_tokens, Dtype dtype, Device device)
    : layers_(layers), max_tokens_(max_tokens) {
  for (const CacheShape& layer : layers) {
    const int64_t tokens = layer.window > 0 ? 0 : max_tokens;
    const auto room = [&](int64_t dim) {
      return dim > 0 ? at::empty({batch, tokens, layer.heads, dim}, at::TensorOptions(dtype).device(device)) : Tensor();
    };
    keys_.push_back(room(layer.key_dim));
    values_.push_back(room(layer.value_dim));
  }
}

Tensor KvCache::store(Tensor& cache, const Tensor& fresh, int64_t window) const {
  if (!cache.defined()) return Tensor();
  if (window == 0) {
    cache.narrow(1, length_, fresh.size(1)).copy_(fresh);
    return cache.narrow(1, 0, length_ + fresh.size(1));
  }
  const int64_t seen = std::min(cache.size(1), window - 1);  // by the first of the new tokens
  return cache = at::cat({cache.narrow(1, cache.size(1) - seen, seen), fresh.to(cache.scalar_type())}, 1);
}

KvCache::View KvCache::append(int64_t layer, const Tensor& k_BSKE, const Tensor& v_BSKV) {
  const int64_t count = k_BSKE.size(1), window = layers_[layer].window;
  TI_ASSERT(length_ + count <= max_tokens(), "{} + {} tokens in a cache for {}", length_, count, max_tokens());
  return {store(keys_[layer], k_BSKE, window), store(values_[layer], v_BSKV, window)};
}

int64_t KvCache::bytes() const {
  int64_t sum = 0;
  for (const std::vector<Tensor>* tensors : {&keys_, &values_}) {
    for (const Tensor& tensor : *tensors) sum += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  }
  return sum;
}

}  // namespace titanium::nn
