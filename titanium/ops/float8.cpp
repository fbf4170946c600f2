#include "titanium/ops/float8.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

constexpr double kSmallestAmax = 1e-12;

double largest(Dtype dtype) {
  TI_ASSERT(dtype == kE4m3 || dtype == kE5m2, "{} is not a float8 dtype", c10::toString(dtype));
  return dtype == kE4m3 ? 448.0 : 57344.0;
}

// A matrix that takes part in a product, and which of its dims tensor parallelism cuts (-1: none).
struct Operand {
  const Tensor& matrix;
  int64_t cut_dim;
  Dtype dtype = kE4m3;
};

Operand input(const Tensor& x_TI, const Float8Weight& weight) { return {x_TI, weight.cut_dim == 1 ? 1 : -1}; }

Operand output_grad(const Tensor& grad_TO, const Float8Weight& weight) {
  return {grad_TO, weight.cut_dim == 0 ? 1 : -1, weight.recipe == Float8Recipe::kTensorwise ? kE5m2 : kE4m3};
}

// One scale for all, or one for each line along `dim`. A line that goes on at other ranks has one scale on all of them.
Float8Tensor quantize(const Operand& operand, std::optional<int64_t> dim, const Float8Weight& weight) {
  const Tensor amax = find_amax(operand.matrix, dim).to(at::kFloat);
  const bool goes_on = operand.cut_dim >= 0 && (!dim || *dim == operand.cut_dim);
  if (goes_on) weight.max_over_parts(amax);
  const bool power_of_two = weight.recipe != Float8Recipe::kTensorwise;
  return to_float8(operand.matrix, find_scale(amax, operand.dtype, power_of_two), operand.dtype);
}

// The dim along which a recipe gives scales: that over which the product sums.
std::optional<int64_t> lines(int64_t summed_dim, const Float8Weight& weight) {
  return weight.recipe == Float8Recipe::kTensorwise ? std::nullopt : std::optional(summed_dim);
}

const Float8Tensor& weight_for_output(const Parameter& weight) {
  Float8Weight& float8 = *weight.float8;
  if (!float8.for_output.data.defined()) {
    float8.for_output = quantize({weight.as_stored(), float8.cut_dim}, lines(1, float8), float8);
    if (float8.recipe == Float8Recipe::kTensorwise) float8.for_input_grad = float8.for_output;
  }
  return float8.for_output;
}

const Float8Tensor& weight_for_input_grad(const Parameter& weight) {
  Float8Weight& float8 = *weight.float8;
  if (float8.recipe == Float8Recipe::kTensorwise) weight_for_output(weight);
  if (!float8.for_input_grad.data.defined()) {
    const bool one_scale = float8.recipe == Float8Recipe::kRowwiseWithGwHp;
    float8.for_input_grad =
        quantize({weight.as_stored(), float8.cut_dim}, one_scale ? std::nullopt : lines(0, float8), float8);
  }
  return float8.for_input_grad;
}

Tensor product(const Tensor& a_MK, const Tensor& b_KN, Dtype dtype) { return at::mm(a_MK, b_KN).to(dtype); }

}  // namespace

Tensor find_amax(const Tensor& x, std::optional<int64_t> dim) {
  if (x.numel() == 0) return at::zeros({}, x.options());
  const Tensor magnitude = x.detach().abs();
  return dim ? magnitude.amax(*dim, /*keepdim=*/true) : magnitude.amax();
}

Tensor find_scale(const Tensor& amax, Dtype dtype, bool power_of_two) {
  const Tensor bounded = amax.to(at::kDouble).clamp_min(kSmallestAmax);
  // The bits of torch's `number / tensor`.
  const Tensor scale = at::reciprocal(bounded).mul_(largest(dtype)).to(at::kFloat);
  return power_of_two ? scale.log2().floor_().exp2_() : scale;
}

Float8Tensor to_float8(const Tensor& x, const Tensor& scale, Dtype dtype) {
  const double limit = largest(dtype);
  return {x.detach().to(at::kFloat).mul(scale).clamp_(-limit, limit).to(dtype), scale};
}

Tensor from_float8(const Float8Tensor& x) { return x.data.to(at::kFloat).div_(x.scale); }

Tensor float8_output(const Tensor& x_TI, const Parameter& weight) {
  const Float8Weight& float8 = *weight.float8;
  const Tensor x = from_float8(quantize(input(x_TI, float8), lines(1, float8), float8));
  return product(x, from_float8(weight_for_output(weight)).t(), x_TI.scalar_type());
}

Tensor float8_input_grad(const Tensor& grad_TO, const Parameter& weight) {
  const Float8Weight& float8 = *weight.float8;
  const Tensor grad = from_float8(quantize(output_grad(grad_TO, float8), lines(1, float8), float8));
  return product(grad, from_float8(weight_for_input_grad(weight)), grad_TO.scalar_type());
}

Tensor float8_weight_grad(const Tensor& grad_TO, const Tensor& x_TI, const Parameter& weight, Dtype dtype) {
  const Float8Weight& float8 = *weight.float8;
  const Tensor grad = from_float8(quantize(output_grad(grad_TO, float8), lines(0, float8), float8));
  const Tensor x = from_float8(quantize(input(x_TI, float8), lines(0, float8), float8));
  return product(grad.t(), x, dtype);
}

bool has_float8_weight_grad(const Parameter& weight) {
  return weight.float8 && weight.float8->recipe != Float8Recipe::kRowwiseWithGwHp;
}

}  // namespace titanium::ops
