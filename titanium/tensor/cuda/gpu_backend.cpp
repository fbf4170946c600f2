#include "titanium/tensor/gpu_backend.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>

#include "titanium/base/error.h"

namespace titanium {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// NCCL is loaded with libtorch_cuda; its headers are not needed to ask for its version.
std::string nccl_version() {
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) return "no NCCL";
  return fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

std::string gpu_versions() {
  int runtime = 0;
  ::cudaRuntimeGetVersion(&runtime);
  return fmt::format("CUDA {}, {}", version_text(runtime), nccl_version());
}

int gpu_device_count() { return c10::cuda::device_count(); }

GpuDeviceProperties gpu_device_properties(int index) {
  cudaDeviceProp properties;
  const cudaError_t status = ::cudaGetDeviceProperties(&properties, index);
  TI_CHECK(status == cudaSuccess, "GPU {} does not answer: {}.", index, ::cudaGetErrorString(status));
  char bus_id[32] = "";
  ::cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index);
  return {.name = properties.name,
          .total_memory = static_cast<int64_t>(properties.totalGlobalMem),
          .compute_capability = 10 * properties.major + properties.minor,
          .pci_bus_id = bus_id};
}

bool gpu_peer_access(int from, int to) {
  int can = 0;
  return ::cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

void choose_gpu_allocator() {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (std::getenv(name) != nullptr) return;
  }
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

GpuMemory gpu_memory(int index) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
  GpuMemory memory;
  memory.max_active = stats.active_bytes[0].peak;
  memory.max_reserved = stats.reserved_bytes[0].peak;
  memory.active = stats.active_bytes[0].current;
  memory.alloc_retries = stats.num_alloc_retries;
  memory.ooms = stats.num_ooms;
  return memory;
}

void reset_peak_gpu_memory(int index) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(index));
}

void synchronize_gpu() { c10::cuda::device_synchronize(); }

ForbidGpuWaits::ForbidGpuWaits() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }

ForbidGpuWaits::~ForbidGpuWaits() {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
}

}  // namespace titanium
