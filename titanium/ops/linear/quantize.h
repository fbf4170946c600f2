// Float8: scales, and matrices that are quantised by one scale or by one for each line. With our kernels on a GPU, with
// ATen elsewhere, to the same bits.
#pragma once

#include <functional>
#include <optional>

#include "titanium/tensor/float8_weight.h"

namespace titanium::ops {

constexpr Dtype kE4m3 = at::kFloat8_e4m3fn;
constexpr Dtype kE5m2 = at::kFloat8_e5m2;

// The largest magnitude in x, in its dtype: of all of it, or along `dim`, which stays with size 1. NaN if there is one;
// 0 if x is empty.
Tensor find_amax(const Tensor& x, std::optional<int64_t> dim = std::nullopt);

// The fp32 factor that brings `amax` to the largest number of `dtype`, computed in fp64. An amax of 0 counts as 1e-12.
// An infinite one gives 0, NaN gives NaN: then the whole tensor is NaN after the cast and back, so that a broken step
// is seen as one.
Tensor find_scale(const Tensor& amax, Dtype dtype, bool power_of_two = false);

// x * scale in fp32, rounded to the nearest even number of `dtype`. What is beyond its largest number becomes that.
Float8Tensor to_float8(const Tensor& x, const Tensor& scale, Dtype dtype);

// What it stands for, in fp32.
Tensor from_float8(const Float8Tensor& x);
// 1 / scale, fp32.
Tensor reciprocal_scale(const Float8Tensor& x);

// How a matrix is quantised. A line is a row of the result.
struct Quantization {
  Dtype dtype = kE4m3;
  bool one_scale = true;  // else one for each line
  bool power_of_two = false;
  bool emulate = false;  // with ATen everywhere
  // Maximum over the ranks that have the other parts of what a scale covers, in place; null: all of it is here.
  const std::function<void(const Tensor&)>* max_over_parts = nullptr;
};

bool has_one_scale(const Float8Weight& weight);  // for each operand of its products
// How an operand of the weight's products is quantised. `goes_on`: other ranks have parts of what a scale covers.
Quantization quantization(const Float8Weight& weight, Dtype dtype, bool one_scale, bool goes_on);

// x [R, K] as it is, or x [K, R] transposed: the result is [R, K], contiguous or the transpose of what is. `amax` is
// that of the tensor over all parts; with one scale it is found if undefined, and set.
Float8Tensor quantize(const Tensor& x_RK, const Quantization& how, Tensor& amax);
Float8Tensor quantize_transposed(const Tensor& x_KR, const Quantization& how, Tensor& amax);
// Both of one matrix, each with its own lines.
struct QuantizedBothWays {
  Float8Tensor as_it_is, transposed;
};
QuantizedBothWays quantize_both_ways(const Tensor& x, const Quantization& as_it_is, const Quantization& transposed,
                                     Tensor& amax);

// Quantises the result of rms_norm_apply to e4m3 with one scale, transposed: [T, D] -> [D, T]. Runs only on a GPU.
Float8Tensor quantize_norm_transposed(const Tensor& x_TD, const Tensor& rstd_T1, const Tensor& weight_D,
                                      const Tensor& amax);

}  // namespace titanium::ops
