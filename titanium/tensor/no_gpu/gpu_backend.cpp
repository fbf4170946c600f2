#include "titanium/tensor/gpu_backend.h"

#include "titanium/base/error.h"

namespace titanium {

std::string gpu_versions() { return "no CUDA"; }

int gpu_device_count() { return 0; }

GpuDeviceProperties gpu_device_properties(int index) {
  TI_ASSERT(false, "GPU {} in a build without CUDA", index);
  return {};
}

bool gpu_peer_access(int, int) { return false; }

void choose_gpu_allocator() {}

GpuMemory gpu_memory(int) { return {}; }

void reset_peak_gpu_memory(int) {}

void synchronize_gpu() {}

ForbidGpuWaits::ForbidGpuWaits() = default;

ForbidGpuWaits::~ForbidGpuWaits() = default;

}  // namespace titanium
