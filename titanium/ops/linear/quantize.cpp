#include "titanium/ops/linear/quantize.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

constexpr double kSmallestAmax = 1e-12;

double largest(Dtype dtype) {
  TI_ASSERT(dtype == kE4m3 || dtype == kE5m2, "{} is not a float8 dtype", c10::toString(dtype));
  return dtype == kE4m3 ? 448.0 : 57344.0;
}

bool with_kernels(const Tensor& x, const Quantization& how) {
  return !how.emulate && uses_kernels(x) && x.dim() == 2 && x.stride(1) == 1 && x.numel() > 0;
}

kernels::Float8Format format(Dtype dtype) {
  return dtype == kE4m3 ? kernels::Float8Format::kE4m3 : kernels::Float8Format::kE5m2;
}

Tensor floats_beside(const Tensor& x, at::IntArrayRef shape) { return at::empty(shape, x.options().dtype(at::kFloat)); }
Tensor float8_beside(const Tensor& x, Dtype dtype, int64_t rows, int64_t columns) {
  return at::empty({rows, columns}, x.options().dtype(dtype));
}

void find_amax_with_kernel(const Tensor& x, const Quantization& how, Tensor& amax) {
  if (amax.defined()) return;
  amax = at::zeros({}, x.options().dtype(at::kFloat));
  launch(kernels::AbsoluteMaximumArgs{element_type(x), x.const_data_ptr(), x.stride(0), x.size(0), x.size(1),
                                      amax.mutable_data_ptr<float>()});
  if (how.max_over_parts != nullptr) (*how.max_over_parts)(amax);
}

// Whichever of the results is asked for.
QuantizedBothWays by_one_scale(const Tensor& x, const Quantization& how, Tensor& amax, bool as_it_is, bool transposed) {
  find_amax_with_kernel(x, how, amax);
  const Tensor reciprocal = floats_beside(x, {});
  QuantizedBothWays out;
  if (as_it_is) out.as_it_is = {float8_beside(x, how.dtype, x.size(0), x.size(1)), {}, reciprocal};
  if (transposed) out.transposed = {float8_beside(x, how.dtype, x.size(1), x.size(0)), {}, reciprocal};
  const auto memory = [](const Float8Tensor& y) { return y.data.defined() ? y.data.data_ptr() : nullptr; };
  launch(kernels::QuantizeTensorArgs{
      element_type(x), x.const_data_ptr(), x.stride(0), x.size(0), x.size(1),
      kernels::Float8Output{format(how.dtype), how.power_of_two, amax.const_data_ptr<float>(), memory(out.as_it_is),
                            memory(out.transposed), reciprocal.mutable_data_ptr<float>()}});
  return out;
}

Float8Tensor by_rows(const Tensor& x, const Quantization& how, const Tensor& column_amax) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const Float8Tensor out = {float8_beside(x, how.dtype, rows, columns), {}, floats_beside(x, {rows, 1})};
  launch(kernels::QuantizeRowsArgs{element_type(x), format(how.dtype), x.const_data_ptr(), x.stride(0), rows, columns,
                                   out.data.data_ptr(), out.reciprocal.mutable_data_ptr<float>(),
                                   column_amax.defined() ? column_amax.mutable_data_ptr<float>() : nullptr});
  return out;
}

Float8Tensor by_columns(const Tensor& x, const Quantization& how, const Tensor& amax) {
  const int64_t rows = x.size(0), columns = x.size(1);
  if (how.max_over_parts != nullptr) (*how.max_over_parts)(amax);
  const Float8Tensor out = {float8_beside(x, how.dtype, columns, rows), {}, floats_beside(x, {columns, 1})};
  launch(kernels::QuantizeColumnsArgs{element_type(x), format(how.dtype), x.const_data_ptr(), x.stride(0), rows,
                                      columns, amax.const_data_ptr<float>(), out.data.data_ptr(),
                                      out.reciprocal.mutable_data_ptr<float>()});
  return out;
}

Tensor zero_column_amax(const Tensor& x) { return at::zeros({x.size(1)}, x.options().dtype(at::kFloat)); }

Tensor found_column_amax(const Tensor& x) {
  const Tensor amax = zero_column_amax(x);
  launch(kernels::ColumnMaximaArgs{element_type(x), x.const_data_ptr(), x.stride(0), x.size(0), x.size(1),
                                   amax.mutable_data_ptr<float>()});
  return amax;
}

// Lines that go on elsewhere need their maxima before they are quantised, for which there is no kernel.
bool rows_with_kernel(const Tensor& x, const Quantization& how) {
  return with_kernels(x, how) && how.power_of_two && how.max_over_parts == nullptr;
}
bool columns_with_kernel(const Tensor& x, const Quantization& how) { return with_kernels(x, how) && how.power_of_two; }

Float8Tensor with_aten(const Tensor& x, int64_t line_dim, const Quantization& how, Tensor& amax) {
  Tensor found = how.one_scale ? amax : Tensor();
  if (!found.defined()) {
    found = find_amax(x, how.one_scale ? std::nullopt : std::optional(line_dim)).to(at::kFloat);
    if (how.max_over_parts != nullptr) (*how.max_over_parts)(found);
  }
  if (how.one_scale) amax = found;
  return to_float8(x, find_scale(found, how.dtype, how.power_of_two), how.dtype);
}

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
  return {x.detach().to(at::kFloat).mul(scale).clamp_(-limit, limit).to(dtype), scale, {}};
}

Tensor from_float8(const Float8Tensor& x) {
  const Tensor values = x.data.to(at::kFloat);
  return x.scale.defined() ? values.div(x.scale) : values.mul(x.reciprocal);
}

Tensor reciprocal_scale(const Float8Tensor& x) {
  return x.reciprocal.defined() ? x.reciprocal : at::reciprocal(x.scale);
}

bool has_one_scale(const Float8Weight& weight) { return weight.recipe == Float8Recipe::kTensorwise; }

Quantization quantization(const Float8Weight& weight, Dtype dtype, bool one_scale, bool goes_on) {
  return {.dtype = dtype,
          .one_scale = one_scale,
          .power_of_two = weight.recipe != Float8Recipe::kTensorwise,
          .emulate = weight.emulate,
          .max_over_parts = goes_on ? &weight.max_over_parts : nullptr};
}

Float8Tensor quantize(const Tensor& x_RK, const Quantization& how, Tensor& amax) {
  if (how.one_scale && with_kernels(x_RK, how)) return by_one_scale(x_RK, how, amax, true, false).as_it_is;
  if (!how.one_scale && rows_with_kernel(x_RK, how)) return by_rows(x_RK, how, {});
  return with_aten(x_RK, 1, how, amax);
}

Float8Tensor quantize_transposed(const Tensor& x_KR, const Quantization& how, Tensor& amax) {
  if (how.one_scale && with_kernels(x_KR, how)) return by_one_scale(x_KR, how, amax, false, true).transposed;
  if (!how.one_scale && columns_with_kernel(x_KR, how)) return by_columns(x_KR, how, found_column_amax(x_KR));
  const Float8Tensor quantized = with_aten(x_KR, 0, how, amax);
  return {quantized.data.t(), how.one_scale ? quantized.scale : quantized.scale.t(), {}};
}

Float8Tensor quantize_norm_transposed(const Tensor& x_TD, const Tensor& rstd_T1, const Tensor& weight_D,
                                      const Tensor& amax) {
  const int64_t rows = x_TD.size(0), dim = x_TD.size(1);
  const Float8Tensor out = {float8_beside(x_TD, kE4m3, dim, rows), {}, floats_beside(x_TD, {})};
  launch(kernels::QuantizeRmsNormArgs{
      element_type(x_TD), element_type(weight_D), x_TD.const_data_ptr(), rstd_T1.const_data_ptr<float>(),
      weight_D.const_data_ptr(), rows, dim,
      kernels::Float8Output{kernels::Float8Format::kE4m3, /*power_of_two=*/false, amax.const_data_ptr<float>(), nullptr,
                            out.data.data_ptr(), out.reciprocal.mutable_data_ptr<float>()}});
  return out;
}

QuantizedBothWays quantize_both_ways(const Tensor& x, const Quantization& as_it_is, const Quantization& transposed,
                                     Tensor& amax) {
  if (as_it_is.one_scale && transposed.one_scale && with_kernels(x, as_it_is)) {
    return by_one_scale(x, as_it_is, amax, true, true);
  }
  if (!as_it_is.one_scale && !transposed.one_scale && rows_with_kernel(x, as_it_is) &&
      columns_with_kernel(x, transposed)) {
    const Tensor column_amax = zero_column_amax(x);
    const Float8Tensor rows = by_rows(x, as_it_is, column_amax);
    return {rows, by_columns(x, transposed, column_amax)};
  }
  return {quantize(x, as_it_is, amax), quantize_transposed(x, transposed, amax)};
}

}  // namespace titanium::ops
