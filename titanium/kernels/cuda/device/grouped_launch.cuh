// Maps of operands and results, and launches of grouped products.
#pragma once

#include "titanium/kernels/cuda/device/grouped_kernel.cuh"
#include "titanium/kernels/cuda/tensor_map.h"

namespace titanium::kernels::grouped {

// Boxes of 128 bytes of the columns of contiguous matrices.
inline CUtensorMap boxes_of(const void* data, int64_t matrices, int64_t rows, int64_t columns, Reads reads,
                            Element element = Element::kBFloat16) {
  const int bytes = element == Element::kE4m3 ? 1 : 2;
  return map_matrices({data, matrices, rows, columns, bytes, copy_rows(reads), kDepthBytes / bytes});
}

template <typename Kind, typename T = bfloat16>
void run(const KernelArgs& args, GpuStream stream) {
  constexpr ClusterShape kShape{kBlocks, kThreads, kSharedBytes};
  static const int kClusters = resident_clusters(grouped_kernel<Kind, T>, kShape);
  launch_clusters(grouped_kernel<Kind, T>, kShape, kClusters, stream, args);
}

}  // namespace titanium::kernels::grouped
