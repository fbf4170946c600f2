#include "titanium/kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "titanium/base/error.h"

namespace titanium::kernels {
namespace {

// The driver's function, found through the runtime: the program does not link the driver.
using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
EncodeTensorMap encode_tensor_map() {
  static const EncodeTensorMap kFunction = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<EncodeTensorMap>(found);
  }();
  return kFunction;
}

}  // namespace

bool can_map_matrices() { return encode_tensor_map() != nullptr; }

CUtensorMap map_matrices(const MappedMatrices& mapped) {
  CUtensorMap map{};
  if (mapped.matrices == 0 || mapped.rows == 0 || mapped.columns == 0) return map;
  const auto bytes = static_cast<cuuint64_t>(mapped.element_bytes);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(mapped.columns), static_cast<cuuint64_t>(mapped.rows),
                              static_cast<cuuint64_t>(mapped.matrices)};
  const cuuint64_t strides[] = {sizes[0] * bytes, sizes[0] * sizes[1] * bytes};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(mapped.box_columns), static_cast<cuuint32_t>(mapped.box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUresult result = encode_tensor_map()(
      &map, bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
      const_cast<void*>(mapped.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TI_CHECK(
      result == CUDA_SUCCESS,
      "the CUDA driver refuses (CUresult {}) to map {} x {} x {} elements of {} bytes at {} in boxes of {} x {}: "
      "arrays of grouped products must begin at a multiple of 16 bytes and have rows of a multiple of 16 bytes. If "
      "these do, use a newer driver.",
      static_cast<int>(result), mapped.matrices, mapped.rows, mapped.columns, mapped.element_bytes, mapped.data,
      mapped.box_rows, mapped.box_columns);
  return map;
}

}  // namespace titanium::kernels
