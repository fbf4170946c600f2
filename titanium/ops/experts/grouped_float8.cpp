#include "titanium/ops/experts/grouped_float8.h"

#include <ATen/ops/_scaled_grouped_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"
#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/quantize.h"

namespace titanium::ops {
namespace {

constexpr int64_t kMultiple = 16;
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

// Our kernels, where matrices have sizes that they take.
bool takes_our_kernels(const Parameter& weight) {
  return has_grouped_multiply() && kernels::grouped_float8_takes(weight.part.shape[1], weight.part.shape[2]);
}

// [E, O, I], a scale for each line of what the product sums over.
Float8Tensor matrices_for_output(const Parameter& weight) {
  Float8Weight& float8 = *weight.float8;
  if (float8.for_output.data.defined()) return float8.for_output;
  const Tensor x_EOI = weight.as_stored().contiguous();
  Tensor amax;
  const Float8Tensor flat = quantize(x_EOI.flatten(0, 1), by_rows(weight), amax);
  const Float8Tensor made{flat.data.view(x_EOI.sizes()), {}, flat.reciprocal.view({x_EOI.size(0), x_EOI.size(1)})};
  if (float8.keeps_copies) float8.for_output = made;
  return made;
}

// [E, I, O].
Float8Tensor matrices_for_input_grad(const Parameter& weight) {
  Float8Weight& float8 = *weight.float8;
  if (float8.for_input_grad.data.defined()) return float8.for_input_grad;
  const Tensor x = weight.as_stored().contiguous();
  const int64_t experts = x.size(0), rows = x.size(1), dim = x.size(2);
  const Float8Tensor made{at::empty({experts, dim, rows}, x.options().dtype(kE4m3)),
                          {},
                          at::empty({experts, dim}, x.options().dtype(at::kFloat))};
  launch(kernels::QuantizeMatricesArgs{.type = element_type(x),
                                       .x = x.const_data_ptr(),
                                       .matrices = experts,
                                       .rows = rows,
                                       .dim = dim,
                                       .lines = static_cast<uint8_t*>(made.data.data_ptr()),
                                       .reciprocals = made.reciprocal.mutable_data_ptr<float>()});
  if (float8.keeps_copies) float8.for_input_grad = made;
  return made;
}

kernels::Float8Lines memory_of(const Tensor& data, const Tensor& reciprocals) {
  return {data.const_data_ptr(), reciprocals.const_data_ptr<float>()};
}
kernels::Float8Lines memory_of(const Float8Tensor& x) { return memory_of(x.data, x.reciprocal); }

kernels::Float8Groups groups_of(const Float8Tensor& rows, const Float8Tensor& matrices_ENK, const Tensor& ends_E) {
  return {ends_E.const_data_ptr<int32_t>(), ends_E.size(0), rows.data.size(0), matrices_ENK.data.size(1),
          rows.data.size(1)};
}

Tensor empty_result(const Float8Tensor& rows, const Float8Tensor& matrices_ENK) {
  return at::empty({rows.data.size(0), matrices_ENK.data.size(1)}, rows.data.options().dtype(at::kBFloat16));
}

// Rows [R, K] times each expert's [N, K]^T.
Tensor multiply_rows(const Float8Tensor& rows, const Float8Tensor& matrices_ENK, const Tensor& ends_E, bool ours) {
  if (!ours) {
    return at::_scaled_grouped_mm(rows.data, matrices_ENK.data.transpose(1, 2), rows.reciprocal.flatten(),
                                  matrices_ENK.reciprocal, ends_E, /*bias=*/std::nullopt,
                                  /*scale_result=*/std::nullopt, at::kBFloat16, /*use_fast_accum=*/true);
  }
  const Tensor y_RN = empty_result(rows, matrices_ENK);
  launch(kernels::GroupedFloat8Args{.groups = groups_of(rows, matrices_ENK, ends_E),
                                    .rows = memory_of(rows),
                                    .matrices = memory_of(matrices_ENK),
                                    .y = y_RN.mutable_data_ptr()});
  return y_RN;
}

Tensor emulated_weight_grad(const Tensor& grad_RO, const Tensor& x_RI, const Parameter& weight, const Tensor& ends_E) {
  const Tensor grad_EOI = at::zeros({ends_E.size(0), grad_RO.size(1), x_RI.size(1)}, grad_RO.options());
  for_each_expert(ends_E, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    const Tensor grad_OC = grad_RO.narrow(0, begin, count).t(), x_IC = x_RI.narrow(0, begin, count).t();
    grad_EOI[expert].copy_(rounded_product(grad_OC, x_IC, weight));
  });
  return grad_EOI;
}

}  // namespace

bool multiplies_float8_experts(const ExpertOperand& rows, const Parameter& weight) {
  if (!weight.float8 || rows.is_float8_only()) return weight.float8 != nullptr;
  const Tensor& x = rows.source();
  return uses_kernels(x) && !weight.float8->emulate && weight.float8->recipe == Float8Recipe::kRowwise &&
         x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && weight.part.shape[1] % kMultiple == 0 &&
         weight.part.shape[2] % kMultiple == 0;
}

bool pairs_float8_input_grads(const ExpertOperand& grad, const Parameter& first, const Parameter& second) {
  return multiplies_float8_experts(grad, first) && multiplies_float8_experts(grad, second) &&
         takes_our_kernels(first) && first.part.shape == second.part.shape;
}

bool pairs_float8_outputs(const ExpertOperand& x, const Parameter& first, const Parameter& second) {
  constexpr int64_t kColumns = 128;  // that the kernel makes of both at a time
  return pairs_float8_input_grads(x, first, second) && first.part.shape[1] % kColumns == 0;
}

Tensor float8_grouped_forward(const ExpertOperand& x_RI, const Parameter& weight, const Tensor& ends_E) {
  if (multiplies_float8_experts(x_RI, weight)) {
    return multiply_rows(x_RI.rows(), matrices_for_output(weight), ends_E, takes_our_kernels(weight));
  }
  return by_expert(x_RI.tensor(), weight.part.shape[1], weight, ends_E,
                   [](const Tensor& matrix_OI) { return matrix_OI; });
}

Tensor float8_grouped_input_grad(const ExpertOperand& grad_RO, const Parameter& weight, const Tensor& ends_E) {
  if (multiplies_float8_experts(grad_RO, weight)) {
    return multiply_rows(grad_RO.rows(), matrices_for_input_grad(weight), ends_E, takes_our_kernels(weight));
  }
  return by_expert(grad_RO.tensor(), weight.part.shape[2], weight, ends_E,
                   [](const Tensor& matrix_OI) { return matrix_OI.t(); });
}

Float8Pair float8_grouped_forward_pair(const ExpertOperand& x_RI, const Parameter& first, const Parameter& second,
                                       const Tensor& ends_E) {
  const Float8Tensor& rows = x_RI.rows();
  const Float8Tensor of_first = matrices_for_output(first), of_second = matrices_for_output(second);
  const Float8Pair made{empty_result(rows, of_first), empty_result(rows, of_second)};
  launch(kernels::GroupedFloat8PairArgs{.groups = groups_of(rows, of_first, ends_E),
                                        .rows = memory_of(rows),
                                        .first = memory_of(of_first),
                                        .second = memory_of(of_second),
                                        .y_first = made.first_RO.mutable_data_ptr(),
                                        .y_second = made.second_RO.mutable_data_ptr()});
  return made;
}

Tensor float8_grouped_input_grad_pair(const ExpertOperand& grad_first, const ExpertOperand& grad_second,
                                      const Parameter& first, const Parameter& second, const Tensor& ends_E) {
  const Float8Tensor &rows = grad_first.rows(), &rows2 = grad_second.rows();
  const Float8Tensor of_first = matrices_for_input_grad(first), of_second = matrices_for_input_grad(second);
  const Tensor grad_RI = empty_result(rows, of_first);
  launch(kernels::GroupedFloat8Args{.groups = groups_of(rows, of_first, ends_E),
                                    .rows = memory_of(rows),
                                    .matrices = memory_of(of_first),
                                    .y = grad_RI.mutable_data_ptr(),
                                    .rows2 = memory_of(rows2),
                                    .matrices2 = memory_of(of_second)});
  return grad_RI;
}

void float8_add_grouped_weight_grad(const ExpertOperand& grad_RO, const ExpertOperand& x_RI, Parameter& weight,
                                    const Tensor& ends_E) {
  if (!multiplies_float8_experts(x_RI, weight)) {
    return weight.accumulate(emulated_weight_grad(grad_RO.tensor(), x_RI.tensor(), weight, ends_E));
  }
  const ExpertLines &grads = grad_RO.lines(ends_E), &inputs = x_RI.lines(ends_E);
  if (!takes_our_kernels(weight)) {
    return weight.accumulate(
        at::_scaled_grouped_mm(grads.data_CL, inputs.data_CL.t(), grads.reciprocals_EC.flatten(),
                               inputs.reciprocals_EC.flatten(), grads.ends_E, /*bias=*/std::nullopt,
                               /*scale_result=*/std::nullopt, at::kBFloat16, /*use_fast_accum=*/true));
  }
  const auto [sum_EOI, is_first] = weight.open_grad_sum(grads.data_CL.device());
  TI_ASSERT(is_aligned(sum_EOI), "the gradient of {} does not lie as it should", weight.fqn);
  launch(kernels::GroupedFloat8WeightGradArgs{.line_ends = grads.ends_E.const_data_ptr<int32_t>(),
                                              .num_experts = ends_E.size(0),
                                              .length = grads.data_CL.size(1),
                                              .out = grads.data_CL.size(0),
                                              .in = inputs.data_CL.size(0),
                                              .dy = memory_of(grads.data_CL, grads.reciprocals_EC),
                                              .x = memory_of(inputs.data_CL, inputs.reciprocals_EC),
                                              .sum_type = element_type(sum_EOI),
                                              .sums = sum_EOI.mutable_data_ptr(),
                                              .accumulate = !is_first});
}

}  // namespace titanium::ops
