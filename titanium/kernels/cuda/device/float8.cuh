// Scales and conversions of titanium/kernels/float8.h.
#pragma once

#include <cuda_fp8.h>

#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/float8.h"

namespace titanium::kernels {

template <Float8Format kValue>
struct FormatTag {
  static constexpr Float8Format kFormat = kValue;
};
// Calls `call` with a tag of the format.
template <typename Call>
void with_format(Float8Format format, const Call& call) {
  if (format == Float8Format::kE4m3) {
    call(FormatTag<Float8Format::kE4m3>{});
  } else {
    call(FormatTag<Float8Format::kE5m2>{});
  }
}

// The operations of the ATen formulas one by one, because other bits would come out of shorter ways.
template <Float8Format kFormat>
__device__ float float8_scale(float amax, bool power_of_two) {
  constexpr double kSmallestAmax = 1e-12, kLargest = kFormat == Float8Format::kE4m3 ? 448.0 : 57344.0;
  const double wide = static_cast<double>(amax);
  const double bounded = wide < kSmallestAmax ? kSmallestAmax : wide;  // NaN stays
  const float scale = __double2float_rn(__dmul_rn(__drcp_rn(bounded), kLargest));
  return power_of_two ? exp2f(floorf(log2f(scale))) : scale;
}

// The first element in the lowest byte. The conversion bounds what it is given.
template <Float8Format kFormat>
__device__ unsigned to_float8(float a, float b, float c, float d) {
  constexpr auto kInterpretation = kFormat == Float8Format::kE4m3 ? __NV_E4M3 : __NV_E5M2;
  const unsigned low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kInterpretation);
  const unsigned high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kInterpretation);
  return low | high << 16;
}

template <Float8Format kFormat>
__device__ uint8_t to_float8(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, kFormat == Float8Format::kE4m3 ? __NV_E4M3 : __NV_E5M2);
}

}  // namespace titanium::kernels
