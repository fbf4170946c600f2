// Grids and launches.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace titanium::kernels {

// Multiprocessors of the first device that asks; all devices of a process are of one kind.
inline int multiprocessors() {
  static const int kCount = [] {
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count > 0 ? count : 1;
  }();
  return kCount;
}

// The most shared memory that a block may ask for beside `fixed_bytes` of its own.
inline int64_t largest_shared_bytes(int64_t fixed_bytes) {
  static const int kBytes = [] {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
  }();
  return kBytes - fixed_bytes;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks for `tasks` of which each block takes one at a time: no more than the device holds at once, because kernels
// loop over their tasks. `per_multiprocessor` is what the kernel's __launch_bounds__ promises.
inline int64_t resident_blocks(int64_t tasks, int per_multiprocessor) {
  const int64_t resident = int64_t{multiprocessors()} * per_multiprocessor;
  return tasks < resident ? tasks : resident;
}

// Errors of the launch stay with the CUDA runtime (cudaGetLastError), where the caller's check finds them.
template <typename Args>
void launch(void (*kernel)(Args), int64_t blocks, int threads, size_t shared_bytes, CUstream_st* stream,
            const Args& args) {
  constexpr size_t kSharedWithoutAsking = 32 << 10;  // of 48 KiB that a kernel has, with its fixed arrays
  if (blocks <= 0) return;
  if (shared_bytes > kSharedWithoutAsking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(args);
}

template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace titanium::kernels
