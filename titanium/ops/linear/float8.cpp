#include "titanium/ops/linear/float8.h"

#include <ATen/ops/mm.h>

#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/gemm.h"

namespace titanium::ops {
namespace {

constexpr int64_t kMultiple = 16;  // of what tensor cores sum over, and of the columns of the result

// A scale of the weight's lines along `dim`, or of all of it, covers other ranks' parts if it crosses the cut.
bool crosses_cut(const Float8Weight& weight, bool one_scale, int64_t dim) {
  return weight.cut_dim >= 0 && (one_scale || weight.cut_dim == dim);
}

Float8Tensor weight_for_output(const Parameter& weight) {
  Float8Weight& float8 = *weight.float8;
  if (float8.for_output.data.defined()) return float8.for_output;
  const bool one_scale = has_one_scale(float8);
  const Float8Tensor made = quantize(
      weight.as_stored(), quantization(float8, kE4m3, one_scale, crosses_cut(float8, one_scale, 1)), float8.amax);
  if (float8.keeps_copies) float8.for_output = made;
  return made;
}

Float8Tensor weight_for_input_grad(const Parameter& weight) {
  Float8Weight& float8 = *weight.float8;
  if (float8.for_input_grad.data.defined()) return float8.for_input_grad;
  const bool one_scale = float8.recipe != Float8Recipe::kRowwise;
  const Float8Tensor made = quantize_transposed(
      weight.as_stored(), quantization(float8, kE4m3, one_scale, crosses_cut(float8, one_scale, 0)), float8.amax);
  if (float8.keeps_copies) float8.for_input_grad = made;
  return made;
}

bool fits_tensor_cores(const Tensor& out, const Float8Tensor& a, const Float8Tensor& b) {
  return out.stride(1) == 1 && a.data.size(1) % kMultiple == 0 && b.data.size(0) % kMultiple == 0;
}

// One number, or one for each row where the other operand has that.
Tensor reciprocals(const Float8Tensor& x, bool by_rows) {
  const Tensor reciprocal = reciprocal_scale(x);
  return by_rows ? reciprocal.expand({x.data.size(0), 1}).contiguous() : reciprocal;
}

// out_MN = a_MK b_NK^T.
void multiply(const Tensor& out, const Float8Tensor& a, const Float8Tensor& b, const Parameter& weight, bool fast,
              const Tensor& added) {
  if (multiplies_float8(out, weight) && fits_tensor_cores(out, a, b)) {
    const bool by_rows = reciprocal_scale(a).dim() == 2 || reciprocal_scale(b).dim() == 2;
    return gemm({.out_MN = out,
                 .a_MK = a.data.contiguous(),
                 .b_KN = b.data.contiguous().t(),
                 .added_MN = added,
                 .a_scale = reciprocals(a, by_rows),
                 .b_scale = reciprocals(b, by_rows),
                 .fast_accumulation = fast});
  }
  const Tensor product = at::mm(from_float8(a), from_float8(b).t()).to(out.scalar_type());
  if (added.defined() && !added.is_same(out)) out.copy_(added);
  added.defined() ? out.add_(product) : out.copy_(product);
}

}  // namespace

bool wants_amax(const Parameter& weight, const RowExchange& exchange) {
  return weight.float8 && has_one_scale(*weight.float8) && exchange.ranks() == 1;
}

bool multiplies_float8(const Tensor& x, const Parameter& weight) {
  return weight.float8 && !weight.float8->emulate && uses_kernels(x);
}

void float8_output(const Tensor& out, const LinearInput& x, const Parameter& weight, const Tensor& added) {
  // The forward's sums are short enough for the tensor cores' own accumulators; the gradients' are not.
  multiply(out, x.rows(*weight.float8), weight_for_output(weight), weight, /*fast=*/true, added);
}

void float8_input_grad(const Tensor& out, const LinearGrad& grad, const Parameter& weight, const Tensor& added) {
  multiply(out, grad.rows(*weight.float8), weight_for_input_grad(weight), weight, /*fast=*/false, added);
}

void float8_weight_grad(const Tensor& out, const LinearGrad& grad, const LinearInput& x, const Parameter& weight,
                        const Tensor& added) {
  multiply(out, grad.columns(*weight.float8), x.columns(*weight.float8), weight, /*fast=*/false, added);
}

LinearInput normalised_in_float8(const Tensor& x_TD, const Tensor& rstd_T1, const Parameter& norm, const Tensor& amax) {
  return LinearInput::of_columns(quantize_norm_transposed(x_TD.contiguous(), rstd_T1, norm.as_stored(), amax));
}

bool has_float8_weight_grad(const Parameter& weight) {
  return weight.float8 && weight.float8->recipe != Float8Recipe::kRowwiseWithGwHp;
}

}  // namespace titanium::ops
