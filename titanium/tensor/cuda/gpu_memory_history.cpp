#include "titanium/tensor/gpu_memory_history.h"

#include <torch/csrc/cuda/memory_snapshot.h>

namespace titanium {

void record_gpu_memory_history(int64_t entries) {
  const std::optional<std::string> enabled = entries > 0 ? std::optional<std::string>("all") : std::nullopt;
  // No stacks of any kind: to gather even empty ones at every allocation costs a small model a fifth of its speed.
  torch::cuda::_record_memory_history(enabled, /*context=*/std::nullopt, /*stacks=*/"python",
                                      static_cast<size_t>(entries));
}

std::string gpu_memory_snapshot() { return torch::cuda::_memory_snapshot_pickled(); }

}  // namespace titanium
