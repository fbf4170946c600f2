// The interface to the GPU that every back end implements. A back end is a folder, of which the build takes one: cuda/,
// or no_gpu/ where there is no GPU.
#pragma once

#include <cstdint>
#include <string>

namespace titanium {

// "CUDA 13.0, NCCL 2.28.9" or "no CUDA".
std::string gpu_versions();

// GPUs that this process can use; 0 without a driver and in a build without CUDA.
int gpu_device_count();

// What the driver says about GPU `index`. Only to be called when gpu_device_count() > index.
struct GpuDeviceProperties {
  std::string name;
  int64_t total_memory = 0;
  int compute_capability = 0;   // 90 for 9.0
  std::string pci_bus_id = {};  // "00000000:1B:00.0", by which the driver's own tools know it
};
GpuDeviceProperties gpu_device_properties(int index);

// Whether GPU `from` can read and write GPU `to` without the host. Both are below gpu_device_count().
bool gpu_peer_access(int from, int to);

// Sets up libtorch's allocator before its first use: segments that grow, so that freed memory of other sizes can be
// used again. PYTORCH_ALLOC_CONF in the environment has the last word.
void choose_gpu_allocator();

// The caching allocator's counters since the last reset, in bytes.
struct GpuMemory {
  int64_t max_active = 0;
  int64_t max_reserved = 0;
  int64_t active = 0;
  int64_t alloc_retries = 0;
  int64_t ooms = 0;
};
GpuMemory gpu_memory(int index);
void reset_peak_gpu_memory(int index);

// Waits for everything queued on the current device.
void synchronize_gpu();

// While one lives, an operation that makes the host wait for the device throws. Not for what CUDA itself hides, such as
// a pageable copy; for tests.
class ForbidGpuWaits {
 public:
  ForbidGpuWaits();
  // NOLINTNEXTLINE(performance-trivially-destructible): where there is a GPU, it does something.
  ~ForbidGpuWaits();
  ForbidGpuWaits(const ForbidGpuWaits&) = delete;
  ForbidGpuWaits& operator=(const ForbidGpuWaits&) = delete;
};

}  // namespace titanium
