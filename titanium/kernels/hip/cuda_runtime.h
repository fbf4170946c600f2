// CUDA's names over HIP, for the kernels of ../cuda when they are compiled for AMD GPUs: this folder stands first among
// the include folders, so that `#include <cuda_runtime.h>` finds this file. It has what the kernels use and no more.
//
// Warps. The kernels think in warps of 32 lanes; gfx90a's wavefronts have 64. Exchanges between lanes are told the
// width 32, so that a wavefront is two warps side by side. Barriers, shared memory and atomics are the same.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

using cudaStream_t = hipStream_t;
using cudaError_t = hipError_t;

constexpr hipError_t cudaSuccess = hipSuccess;
constexpr auto cudaDevAttrMultiProcessorCount = hipDeviceAttributeMultiprocessorCount;
constexpr auto cudaDevAttrMaxSharedMemoryPerBlockOptin = hipDeviceAttributeMaxSharedMemoryPerBlock;
constexpr auto cudaFuncAttributeMaxDynamicSharedMemorySize = hipFuncAttributeMaxDynamicSharedMemorySize;

inline hipError_t cudaGetDevice(int* device) { return hipGetDevice(device); }
inline hipError_t cudaGetLastError() { return hipGetLastError(); }
inline hipError_t cudaDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  return hipDeviceGetAttribute(value, attribute, device);
}
template <typename Kernel>
hipError_t cudaFuncSetAttribute(Kernel* kernel, hipFuncAttribute attribute, int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// Launches with attributes: there are no clusters, and a second kernel starts when the first has ended, which is what
// it waits for in any case.
enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension, cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  hipStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <typename Args>
hipError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Args), const Args& args) {
  kernel<<<config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream>>>(args);
  return hipGetLastError();
}
template <typename Kernel>
hipError_t cudaOccupancyMaxActiveClusters(int* count, Kernel*, const cudaLaunchConfig_t*) {
  *count = 0;
  return hipSuccess;
}

#define __grid_constant__

constexpr int kLanesOfWarp = 32;
template <typename T>
__device__ T __shfl_xor_sync(unsigned, T value, int lanes, int width = kLanesOfWarp) {
  return __shfl_xor(value, lanes, width);
}
template <typename T>
__device__ T __shfl_sync(unsigned, T value, int lane, int width = kLanesOfWarp) {
  return __shfl(value, lane, width);
}
template <typename T>
__device__ T __shfl_up_sync(unsigned, T value, unsigned lanes, int width = kLanesOfWarp) {
  return __shfl_up(value, lanes, width);
}
// The half of the wavefront that this lane's warp is.
__device__ inline unsigned __ballot_sync(unsigned, int predicate) {
  const uint64_t votes = __ballot(predicate);
  return static_cast<unsigned>(__lane_id() < kLanesOfWarp ? votes : votes >> kLanesOfWarp);
}
template <typename T>
__device__ T __reduce_add_sync(unsigned, T value) {
  for (int lanes = kLanesOfWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor(value, lanes, kLanesOfWarp);
  return value;
}
template <typename T>
__device__ T __reduce_max_sync(unsigned, T value) {
  for (int lanes = kLanesOfWarp / 2; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor(value, lanes, kLanesOfWarp);
    value = other > value ? other : value;
  }
  return value;
}
template <typename T>
__device__ T __reduce_min_sync(unsigned, T value) {
  for (int lanes = kLanesOfWarp / 2; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor(value, lanes, kLanesOfWarp);
    value = other < value ? other : value;
  }
  return value;
}
// The lanes of the warp that have the same value.
template <typename T>
__device__ unsigned __match_any_sync(unsigned, T value) {
  unsigned same = 0;
  for (int lane = 0; lane < kLanesOfWarp; ++lane)
    same |= (__shfl(value, lane, kLanesOfWarp) == value ? 1U : 0U) << lane;
  return same;
}
// The larger of both 16-bit halves.
__device__ inline unsigned __vmaxu2(unsigned a, unsigned b) {
  const unsigned low = (a & 0xFFFFU) > (b & 0xFFFFU) ? a & 0xFFFFU : b & 0xFFFFU;
  return low | (a >> 16 > b >> 16 ? a & 0xFFFF0000U : b & 0xFFFF0000U);
}
// Lanes of a wavefront run together, and LDS is in order for them.
__device__ inline void __syncwarp(unsigned = 0) { __builtin_amdgcn_wave_barrier(); }

// Loads that are not kept in caches.
template <typename T>
__device__ T __ldcs(const T* from) {
  return *from;
}
