// What evaluation and generation need of a model, on one rank that has all of it.
#pragma once

#include "titanium/models/token_batch.h"
#include "titanium/nn/kv_cache.h"

namespace titanium::models {

class Decoding {
 public:
  virtual ~Decoding() = default;
  // [B, S, V].
  virtual Tensor logits(const TokenBatch& batch) = 0;
  // Appends tokens [B, S] to what the cache holds and returns the logits of the last one, [B, V].
  virtual Tensor decode(const Tensor& tokens_BS, nn::KvCache& cache) = 0;
  virtual nn::KvCache make_cache(int64_t batch, int64_t max_tokens) const = 0;  // after build_buffers
};

}  // namespace titanium::models
