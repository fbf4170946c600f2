// Maps of operands and results, and launches of grouped products.
#pragma once

#include "titanium/kernels/cuda/device/grouped_kernel.cuh"

namespace titanium::kernels::grouped {

// The driver's function, found through the runtime: the program does not link the driver.
using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
inline EncodeTensorMap encode_tensor_map() {
  static const EncodeTensorMap kFunction = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<EncodeTensorMap>(found);
  }();
  return kFunction;
}

// Boxes of 128 bytes of the columns of contiguous matrices.
inline CUtensorMap boxes_of(const void* data, int64_t matrices, int64_t rows, int64_t columns, Reads reads,
                            Element element = Element::kBFloat16) {
  const int bytes = element == Element::kE4m3 ? 1 : 2;
  CUtensorMap map{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[] = {sizes[0] * bytes, sizes[0] * sizes[1] * bytes};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kDepthBytes / bytes), static_cast<cuuint32_t>(copy_rows(reads)), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  encode_tensor_map()(&map, bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                      const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

template <typename Kind, typename T = bfloat16>
void run(const KernelArgs& args, GpuStream stream) {
  constexpr ClusterShape kShape{kBlocks, kThreads, kSharedBytes};
  static const int kClusters = resident_clusters(grouped_kernel<Kind, T>, kShape);
  launch_clusters(grouped_kernel<Kind, T>, kShape, kClusters, stream, args);
}

}  // namespace titanium::kernels::grouped
