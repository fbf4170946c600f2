// What the kernels use of CUDA's float8 numbers, for AMD GPUs that have none.
#pragma once

#include "titanium/kernels/hip/cuda_runtime.h"
#include "titanium/kernels/hip/float8_bits.h"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

__device__ inline uint8_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t, __nv_fp8_interpretation_t format) {
  using namespace titanium::kernels::hip;
  return float8_bits(value, format == __NV_E4M3 ? kE4m3Layout : kE5m2Layout);
}
// The first one in the lower byte.
__device__ inline uint16_t __nv_cvt_float2_to_fp8x2(float2 values, __nv_saturation_t saturation,
                                                    __nv_fp8_interpretation_t format) {
  return static_cast<uint16_t>(__nv_cvt_float_to_fp8(values.x, saturation, format) |
                               __nv_cvt_float_to_fp8(values.y, saturation, format) << 8);
}
