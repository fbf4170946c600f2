#include "titanium/tensor/gpu_memory_history.h"

#include <torch/csrc/cuda/memory_snapshot.h>

namespace titanium {

void record_gpu_memory_history(int64_t entries) {
  std::optional<std::string> enabled, context;
  if (entries > 0) enabled = context = "all";
  torch::cuda::_record_memory_history(enabled, context, /*stacks=*/"python", static_cast<size_t>(entries));
}

std::string gpu_memory_snapshot() { return torch::cuda::_memory_snapshot_pickled(); }

}  // namespace titanium
