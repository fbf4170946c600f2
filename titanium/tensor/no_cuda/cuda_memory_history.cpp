#include "titanium/tensor/cuda_memory_history.h"

namespace titanium {

void record_cuda_memory_history(int64_t) {}

std::string cuda_memory_snapshot() { return {}; }

}  // namespace titanium
