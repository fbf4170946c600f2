// Float8: scales, casts, and the three products of a linear layer whose weight has a recipe (Note [Float8 recipes] in
// tensor/float8_weight.h). All of it is emulated: operands are rounded to float8, and float32 multiplies what they
// stand for, as torchao does with `emulate`. Kernels that multiply float8 have these functions as their reference.
#pragma once

#include <optional>

#include "titanium/tensor/parameter.h"

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

// The products. x is [T, in], grad is [T, out]; results have the dtype of x, of grad, and the one asked for.
Tensor float8_output(const Tensor& x_TI, const Parameter& weight);
Tensor float8_input_grad(const Tensor& grad_TO, const Parameter& weight);
Tensor float8_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, const Parameter& weight, Dtype dtype);
// False: the recipe leaves this product in high precision, and the function above must not be called.
bool has_float8_weight_grad(const Parameter& weight);

}  // namespace titanium::ops
