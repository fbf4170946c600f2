#include "titanium/nn/kv_cache.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium::nn {

KvCache::KvCache(const std::vector<KeyValueShape>& layers, int64_t batch, int64_t max_tokens, Dtype dtype,
                 Device device) {
  for (const KeyValueShape& layer : layers) {
    for (std::vector<Tensor>* cache : {&keys_, &values_}) {
      cache->push_back(
          at::empty({batch, max_tokens, layer.heads, layer.head_dim}, at::TensorOptions(dtype).device(device)));
    }
  }
}

KvCache::View KvCache::append(int64_t layer, const Tensor& k_BSKE, const Tensor& v_BSKE) {
  const int64_t count = k_BSKE.size(1);
  TI_ASSERT(length_ + count <= max_tokens(), "{} + {} tokens in a cache for {}", length_, count, max_tokens());
  const auto store = [&](Tensor& cache, const Tensor& fresh) {
    cache.narrow(1, length_, count).copy_(fresh);
    return cache.narrow(1, 0, length_ + count);
  };
  return {store(keys_[layer], k_BSKE), store(values_[layer], v_BSKE)};
}

}  // namespace titanium::nn
