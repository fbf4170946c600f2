#include "titanium/ops/experts/grouped_float8.h"

#include <ATen/ops/_scaled_grouped_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/quantize.h"

namespace titanium::ops {
namespace {

constexpr int64_t kMultiple = kernels::kFloat8GroupMultiple;
constexpr int64_t kMxBlock = 32;
constexpr double kLargestE4m3 = 448;

// One scale for each row: of rows and weights alike, along what the product sums over.
Quantization by_rows(const Parameter& weight) {
  return {.one_scale = false, .power_of_two = true, .emulate = weight.float8->emulate};
}

// x [R, K] as MXFP8 rounds it, in fp32: blocks of 32 along K share a scale, a power of two that brings the largest
// magnitude of a block into e4m3. The last block of a row may be short.
Tensor rounded_to_mx(const Tensor& x_RK) {
  const int64_t columns = x_RK.size(1), missing = (kMxBlock - columns % kMxBlock) % kMxBlock;
  const Tensor blocks = at::constant_pad_nd(x_RK.detach().to(at::kFloat), {0, missing}).unflatten(1, {-1, kMxBlock});
  // The exponent is rounded up, so that nothing is cut off; a block of zeros has the smallest one.
  const Tensor wanted = blocks.abs().amax(2, /*keepdim=*/true).div_(kLargestE4m3);
  const Tensor scale = wanted.log2().ceil_().clamp_(-127, 127).exp2_();
  const Tensor values = blocks.div(scale).clamp_(-kLargestE4m3, kLargestE4m3).to(kE4m3).to(at::kFloat).mul_(scale);
  return values.flatten(1).narrow(1, 0, columns);
}

// What the operand of a product stands for once it is rounded, in fp32.
Tensor rounded(const Tensor& x_MK, const Parameter& weight) {
  if (weight.float8->recipe == Float8Recipe::kMx) return rounded_to_mx(x_MK);
  Tensor amax;
  return from_float8(quantize(x_MK.contiguous(), by_rows(weight), amax));
}

// a_MK b_NK^T.
Tensor rounded_product(const Tensor& a_MK, const Tensor& b_NK, const Parameter& weight) {
  return at::mm(rounded(a_MK, weight), rounded(b_NK, weight).t()).to(a_MK.scalar_type());
}

Tensor by_expert(const Tensor& rows_RC, int64_t columns, const Parameter& weight, const Tensor& ends_E,
                 const std::function<Tensor(const Tensor& weight)>& matrix) {
  const Tensor out = at::empty({rows_RC.size(0), columns}, rows_RC.options());
  for_each_expert(ends_E, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    const Tensor rows = rows_RC.narrow(0, begin, count);
    out.narrow(0, begin, count).copy_(rounded_product(rows, matrix(weight.as_stored()[expert]), weight));
  });
  return out;
}

bool takes_tensor_cores(const Tensor& rows, const Parameter& weight) {
  return uses_kernels(rows) && !weight.float8->emulate && weight.float8->recipe == Float8Recipe::kRowwise &&
         rows.scalar_type() == at::kBFloat16 && rows.size(0) > 0 && weight.part.shape[1] % kMultiple == 0 &&
         weight.part.shape[2] % kMultiple == 0;
}

Float8Tensor quantized_rows(const Tensor& x_RK, const Parameter& weight) {
  Tensor amax;
  return quantize(x_RK, by_rows(weight), amax);
}

// [E, M, K] row by row.
Float8Tensor quantized_matrices(const Tensor& x_EMK, const Parameter& weight) {
  const Float8Tensor flat = quantized_rows(x_EMK.contiguous().flatten(0, 1), weight);
  return {flat.data.view(x_EMK.sizes()), {}, flat.reciprocal.view({x_EMK.size(0), x_EMK.size(1)})};
}

// [E, K, M] -> [E, M, K].
Float8Tensor quantized_transposed(const Tensor& x_EKM) {
  const int64_t experts = x_EKM.size(0), rows = x_EKM.size(1), dim = x_EKM.size(2);
  const Tensor x = x_EKM.contiguous();
  const Float8Tensor out = {at::empty({experts, dim, rows}, x.options().dtype(kE4m3)),
                            {},
                            at::empty({experts, dim}, x.options().dtype(at::kFloat))};
  launch(kernels::QuantizeGroupsArgs{.type = element_type(x),
                                     .x = x.const_data_ptr(),
                                     .ends = nullptr,
                                     .rows_of_group = rows,
                                     .groups = experts,
                                     .dim = dim,
                                     .lines = static_cast<uint8_t*>(out.data.data_ptr()),
                                     .group_stride = dim * rows,
                                     .line_stride = rows,
                                     .line_ends = nullptr,
                                     .reciprocals = out.reciprocal.mutable_data_ptr<float>()});
  return out;
}

// Columns of the rows of each expert, [C, at most R + E * kMultiple]; where experts end there.
struct ExpertColumns {
  Float8Tensor lines;  // its reciprocal is [E * C]
  Tensor ends_E;
};
ExpertColumns quantized_columns(const Tensor& x_RC, const Tensor& ends_E) {
  const int64_t experts = ends_E.size(0), dim = x_RC.size(1);
  const int64_t length = (x_RC.size(0) + experts * (kMultiple - 1) + kMultiple - 1) / kMultiple * kMultiple;
  const Tensor x = x_RC.contiguous();
  const ExpertColumns out = {{at::empty({dim, length}, x.options().dtype(kE4m3)),
                              {},
                              at::empty({experts * dim}, x.options().dtype(at::kFloat))},
                             at::empty({experts}, ends_E.options())};
  launch(kernels::QuantizeGroupsArgs{.type = element_type(x),
                                     .x = x.const_data_ptr(),
                                     .ends = ends_E.const_data_ptr<int32_t>(),
                                     .rows_of_group = 0,
                                     .groups = experts,
                                     .dim = dim,
                                     .lines = static_cast<uint8_t*>(out.lines.data.data_ptr()),
                                     .group_stride = 0,
                                     .line_stride = length,
                                     .line_ends = out.ends_E.mutable_data_ptr<int32_t>(),
                                     .reciprocals = out.lines.reciprocal.mutable_data_ptr<float>()});
  return out;
}

// Rows [R, K] times each expert's [N, K]^T.
Tensor multiply_rows(const Float8Tensor& rows, const Float8Tensor& matrices_ENK, const Tensor& ends_E) {
  return at::_scaled_grouped_mm(rows.data, matrices_ENK.data.transpose(1, 2), rows.reciprocal.flatten(),
                                matrices_ENK.reciprocal, ends_E, /*bias=*/std::nullopt, /*scale_result=*/std::nullopt,
                                at::kBFloat16, /*use_fast_accum=*/true);
}

}  // namespace

Tensor float8_grouped_forward(const Tensor& x_RI, const Parameter& weight, const Tensor& ends_E) {
  if (takes_tensor_cores(x_RI, weight)) {
    return multiply_rows(quantized_rows(x_RI.contiguous(), weight), quantized_matrices(weight.as_stored(), weight),
                         ends_E);
  }
  return by_expert(x_RI, weight.part.shape[1], weight, ends_E, [](const Tensor& matrix_OI) { return matrix_OI; });
}

Tensor float8_grouped_input_grad(const Tensor& grad_RO, const Parameter& weight, const Tensor& ends_E) {
  if (takes_tensor_cores(grad_RO, weight)) {
    return multiply_rows(quantized_rows(grad_RO.contiguous(), weight), quantized_transposed(weight.as_stored()),
                         ends_E);
  }
  return by_expert(grad_RO, weight.part.shape[2], weight, ends_E,
                   [](const Tensor& matrix_OI) { return matrix_OI.t(); });
}

Tensor float8_grouped_weight_grad(const Tensor& grad_RO, const Tensor& x_RI, const Parameter& weight,
                                  const Tensor& ends_E) {
  if (takes_tensor_cores(x_RI, weight)) {
    const ExpertColumns grads = quantized_columns(grad_RO, ends_E), inputs = quantized_columns(x_RI, ends_E);
    return at::_scaled_grouped_mm(grads.lines.data, inputs.lines.data.t(), grads.lines.reciprocal,
                                  inputs.lines.reciprocal, grads.ends_E, /*bias=*/std::nullopt,
                                  /*scale_result=*/std::nullopt, at::kBFloat16, /*use_fast_accum=*/true);
  }
  const Tensor grad_EOI = at::zeros({ends_E.size(0), grad_RO.size(1), x_RI.size(1)}, grad_RO.options());
  for_each_expert(ends_E, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    const Tensor grad_OC = grad_RO.narrow(0, begin, count).t(), x_IC = x_RI.narrow(0, begin, count).t();
    grad_EOI[expert].copy_(rounded_product(grad_OC, x_IC, weight));
  });
  return grad_EOI;
}

}  // namespace titanium::ops
