// Grids and launches.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "titanium/kernels/gpu_stream.h"

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

// Note [Grids]
// A block for each task is fastest where a block keeps nothing from task to task: blocks then start in the order of the
// memory that they touch, and what is under way at any time lies close together. A resident grid, whose blocks each
// loop over every n-th task, drifts apart and loses a tenth of the memory's speed. It is for kernels whose blocks
// gather something over all their tasks, and for those that keep the next task's words under way.

// Blocks for `tasks` of which each block takes one at a time: no more than the device holds at once.
// `per_multiprocessor` is what the kernel's __launch_bounds__ promises.
inline int64_t resident_blocks(int64_t tasks, int per_multiprocessor) {
  const int64_t resident = int64_t{multiprocessors()} * per_multiprocessor;
  return tasks < resident ? tasks : resident;
}

// Errors of the launch stay with the CUDA runtime (cudaGetLastError), where the caller's check finds them.
template <typename Args>
void launch(void (*kernel)(Args), int64_t blocks, int threads, size_t shared_bytes, GpuStream stream,
            const Args& args) {
  constexpr size_t kSharedWithoutAsking = 32 << 10;  // of 48 KiB that a kernel has, with its fixed arrays
  if (blocks <= 0) return;
  if (shared_bytes > kSharedWithoutAsking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(args);
}

// Note [Second kernels]
// A kernel that only finishes what the one before it on the stream has begun is launched while that one still runs, and
// waits on the device for its end: every thread calls `wait_for_first_kernel` before it reads what the first has
// written, and before it returns.
template <typename Args>
void launch_second(void (*kernel)(Args), int64_t blocks, int threads, GpuStream stream, const Args& args) {
  if (blocks <= 0) return;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, args);
}
// In the first kernel: from here on the second may be put on the device.
__device__ inline void let_second_kernel_come() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_first_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct ClusterShape {
  int blocks;
  int threads;  // of a block
  int64_t shared_bytes;
};

template <typename Call>
void with_clusters(ClusterShape shape, int64_t clusters, GpuStream stream, const Call& call) {
  cudaLaunchAttribute dimension{};
  dimension.id = cudaLaunchAttributeClusterDimension;
  dimension.val.clusterDim.x = static_cast<unsigned>(shape.blocks);
  dimension.val.clusterDim.y = dimension.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &dimension;
  config.numAttrs = 1;
  call(config);
}

// Clusters of neighbouring blocks that can be on the device at once; 0 where there are none (before compute capability
// 9.0), or no room for one.
template <typename Args>
int resident_clusters(void (*kernel)(Args), ClusterShape shape) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
  int count = 0;
  with_clusters(shape, 1, nullptr, [&](const cudaLaunchConfig_t& config) {
    if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) count = 0;
  });
  static_cast<void>(cudaGetLastError());  // a device that cannot is not an error
  return count;
}

// Of a kernel whose clusters wait for each other, no more than resident_clusters has said are possible.
template <typename Args>
void launch_clusters(void (*kernel)(Args), ClusterShape shape, int64_t clusters, GpuStream stream, const Args& args) {
  if (clusters <= 0) return;
  with_clusters(shape, clusters, stream,
                [&](const cudaLaunchConfig_t& config) { cudaLaunchKernelEx(&config, kernel, args); });
}

template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace titanium::kernels
