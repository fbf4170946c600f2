#include "titanium/parallel/data_parallel/buffer_pool.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

// A buffer serves requests of at least this share of its size: the embedding and the head take turns in one.
constexpr double kLeastUse = 0.8;

bool serves(const Tensor& buffer, int64_t elements, Dtype dtype) {
  return buffer.scalar_type() == dtype && buffer.numel() >= elements &&
         static_cast<double>(elements) >= kLeastUse * static_cast<double>(buffer.numel());
}

}  // namespace

Tensor BufferPool::take(int64_t elements, Dtype dtype) {
  const auto free = std::find_if(free_.begin(), free_.end(),
                                 [&](const Free& candidate) { return serves(candidate.buffer, elements, dtype); });
  if (free != free_.end()) {
    free->last_use.wait();
    taken_.push_back(std::move(free->buffer));
    free_.erase(free);
  } else {
    taken_.push_back(at::empty({elements}, at::TensorOptions(dtype).device(device_)));
    bytes_ += static_cast<int64_t>(taken_.back().nbytes());
  }
  return taken_.back().narrow(0, 0, elements);
}

void BufferPool::give_back(const Tensor& buffer) {
  const auto whole = std::find_if(taken_.begin(), taken_.end(),
                                  [&](const Tensor& taken) { return taken.data_ptr() == buffer.data_ptr(); });
  TI_ASSERT(whole != taken_.end(), "a buffer that is not from this pool");
  free_.push_back({std::move(*whole), Fence(device_)});
  taken_.erase(whole);
  free_.back().last_use.record();
}

}  // namespace titanium::parallel
