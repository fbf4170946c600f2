#include "titanium/tensor/cuda_backend.h"

#include "titanium/base/error.h"

namespace titanium {

std::string cuda_versions() { return "no CUDA"; }

int cuda_device_count() { return 0; }

CudaDeviceProperties cuda_device_properties(int index) {
  TI_ASSERT(false, "GPU {} in a build without CUDA", index);
  return {};
}

bool cuda_peer_access(int, int) { return false; }

void choose_cuda_allocator() {}

CudaMemory cuda_memory(int) { return {}; }

void reset_peak_cuda_memory(int) {}

void synchronize_cuda() {}

ForbidCudaWaits::ForbidCudaWaits() = default;

ForbidCudaWaits::~ForbidCudaWaits() = default;

}  // namespace titanium
