#include "titanium/ops/experts/grouped_linear.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/experts/grouped_float8.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"
#include "titanium/ops/linear/multiply.h"

namespace titanium::ops {
namespace {

// The GPU's grouped product wants rows of 16 bytes; the host need not know where the groups end.
bool takes_grouped_mm(const Tensor& rows, const Parameter& weight) {
  constexpr int64_t kAlignment = 8;
  return uses_kernels(rows) && rows.scalar_type() == at::kBFloat16 && rows.size(0) > 0 &&
         weight.part.shape[1] % kAlignment == 0 && weight.part.shape[2] % kAlignment == 0;
}

// Our own kernels, in which the rows of an expert may begin anywhere.
bool takes_grouped_multiply(const Tensor& rows, const Parameter& weight) {
  return takes_grouped_mm(rows, weight) && !weight.float8 && has_grouped_multiply() && is_aligned(rows) &&
         kernels::grouped_multiply_takes(weight.part.shape[1], weight.part.shape[2]) &&
         is_aligned(weight.in(rows.scalar_type()));
}

kernels::ExpertGroups groups_of(const Tensor& rows, const Parameter& weight, const Tensor& ends_E) {
  return {.ends = ends_E.const_data_ptr<int32_t>(),
          .num_experts = ends_E.size(0),
          .rows = rows.size(0),
          .out = weight.part.shape[1],
          .in = weight.part.shape[2]};
}

const void* memory_of(const Parameter& weight, const Tensor& rows) {
  return weight.in(rows.scalar_type()).const_data_ptr();
}

// out = rows times each expert's matrix [E, in, out] [+ added].
void multiply_rows(const Tensor& out, const Tensor& rows, const Tensor& matrices, const Tensor& ends_E,
                   const Tensor& added = {}) {
  for_each_expert(ends_E, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    const auto part = [&](const Tensor& x) { return x.narrow(0, begin, count); };
    multiply(part(out), part(rows), matrices[expert], added.defined() ? part(added) : Tensor());
  });
}

// The gradient of the input through one weight, or the sum of those through two.
Tensor tensor_core_input_grad(const Tensors& grads, const std::vector<const Parameter*>& weights,
                              const Tensor& ends_E) {
  const Tensor grad_RI = at::empty({grads[0].size(0), weights[0]->part.shape[2]}, grads[0].options());
  const bool two = grads.size() > 1;
  launch(kernels::GroupedInputGradArgs{.groups = groups_of(grads[0], *weights[0], ends_E),
                                       .dy = grads[0].const_data_ptr(),
                                       .weight = memory_of(*weights[0], grads[0]),
                                       .dy2 = two ? grads[1].const_data_ptr() : nullptr,
                                       .weight2 = two ? memory_of(*weights[1], grads[1]) : nullptr,
                                       .dx = grad_RI.mutable_data_ptr()});
  return grad_RI;
}

bool takes_gated_multiply(const Tensor& rows, const Parameter& gate, const Parameter& up) {
  constexpr int64_t kColumns = 128;  // that the fused kernel makes of both at a time
  return takes_grouped_multiply(rows, gate) && takes_grouped_multiply(rows, up) && gate.part.shape[1] % kColumns == 0;
}

void add_input_grad(const Tensor& sum_RI, const ExpertOperand& grad_RO, const Parameter& weight, const Tensor& ends_E) {
  if (weight.float8 || takes_grouped_mm(grad_RO.tensor(), weight)) {
    sum_RI.add_(grouped_input_grad(grad_RO, weight, ends_E));
    return;
  }
  const Tensor& rows = grad_RO.tensor();
  multiply_rows(sum_RI, rows, weight.in(rows.scalar_type()), ends_E, sum_RI);
}

void add_weight_grad(const Tensor& grad_RO, const Tensor& x_RI, Parameter& weight, const Tensor& ends_E) {
  if (takes_grouped_mm(x_RI, weight) && !takes_grouped_multiply(x_RI, weight)) {
    // The first one becomes the sum as it is.
    return weight.accumulate(at::_grouped_mm(grad_RO.t(), x_RI, ends_E).contiguous());
  }
  const auto [sum_EOI, is_first] = weight.open_grad_sum(grad_RO.device());
  if (takes_grouped_multiply(x_RI, weight)) {
    TI_ASSERT(is_aligned(sum_EOI) && is_aligned(grad_RO), "gradients of {} do not lie as they should", weight.fqn);
    return launch(kernels::GroupedWeightGradArgs{.groups = groups_of(x_RI, weight, ends_E),
                                                 .dy = grad_RO.const_data_ptr(),
                                                 .x = x_RI.const_data_ptr(),
                                                 .sum_type = element_type(sum_EOI),
                                                 .sums = sum_EOI.mutable_data_ptr(),
                                                 .accumulate = !is_first});
  }
  for_each_expert(ends_E, [&, sum = sum_EOI, first = is_first](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) {
      if (first) sum[expert].zero_();
      return;
    }
    multiply(sum[expert], grad_RO.narrow(0, begin, count).t(), x_RI.narrow(0, begin, count),
             first ? Tensor() : sum[expert]);
  });
}

void add_bias_grad_kernel(const Tensor& grad_RO, Parameter& bias, const Tensor& ends_E, const Tensor& weights_R) {
  const auto [sum_EO, is_first] = bias.open_grad_sum(grad_RO.device());
  const kernels::ExpertColumnSumsArgs args{
      .type = element_type(grad_RO),
      .sum_type = element_type(sum_EO),
      .rows = grad_RO.const_data_ptr(),
      .row_stride = grad_RO.stride(0),
      .ends = ends_E.const_data_ptr<int32_t>(),
      .weights = weights_R.defined() ? weights_R.const_data_ptr<float>() : nullptr,
      .choice_of_row = nullptr,
      .sums = sum_EO.mutable_data_ptr(),
      .accumulate = !is_first,
      .num_experts = ends_E.size(0),
      .dim = grad_RO.size(1),
      .scratch = nullptr,
  };
  launch_with_scratch(args, grad_RO);
}

}  // namespace

bool is_aligned(const Tensor& x) {
  constexpr uintptr_t kAlignment = 16;
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kAlignment == 0;
}

void for_each_expert(const Tensor& ends_E,
                     const std::function<void(int64_t expert, int64_t begin, int64_t rows)>& use) {
  const Tensor ends = ends_E.cpu();
  int64_t begin = 0;
  for (int64_t expert = 0; expert < ends.size(0); ++expert) {
    const int64_t end = ends.data_ptr<int32_t>()[expert];
    use(expert, begin, end - begin);
    begin = end;
  }
}

Tensor grouped_forward(const ExpertOperand& x, const Parameter& weight, const Tensor& ends_E) {
  if (weight.float8) return float8_grouped_forward(x, weight, ends_E);
  const Tensor& x_RI = x.tensor();
  if (takes_grouped_multiply(x_RI, weight)) {
    const Tensor y_RO = at::empty({x_RI.size(0), weight.part.shape[1]}, x_RI.options());
    launch(kernels::GroupedForwardArgs{.groups = groups_of(x_RI, weight, ends_E),
                                       .x = x_RI.const_data_ptr(),
                                       .weight = memory_of(weight, x_RI),
                                       .y = y_RO.mutable_data_ptr()});
    return y_RO;
  }
  const Tensor matrices_EIO = weight.in(x_RI.scalar_type()).transpose(1, 2);
  if (takes_grouped_mm(x_RI, weight)) return at::_grouped_mm(x_RI, matrices_EIO, ends_E);
  const Tensor y_RO = at::empty({x_RI.size(0), matrices_EIO.size(2)}, x_RI.options());
  multiply_rows(y_RO, x_RI, matrices_EIO, ends_E);
  return y_RO;
}

GatedRows grouped_gated_forward(const ExpertOperand& x, const Parameter& gate, const Parameter& up,
                                const Tensor& ends_E) {
  if (pairs_float8_outputs(x, gate, up)) {
    const Float8Pair pair = float8_grouped_forward_pair(x, gate, up, ends_E);
    return {pair.first_RO, pair.second_RO, Tensor()};
  }
  if (gate.float8 || !takes_gated_multiply(x.tensor(), gate, up)) {
    return {grouped_forward(x, gate, ends_E), grouped_forward(x, up, ends_E), Tensor()};
  }
  const Tensor& x_RI = x.tensor();
  const auto rows = [&] { return at::empty({x_RI.size(0), gate.part.shape[1]}, x_RI.options()); };
  const GatedRows out{rows(), rows(), rows()};
  launch(kernels::GroupedSwigluArgs{.groups = groups_of(x_RI, gate, ends_E),
                                    .x = x_RI.const_data_ptr(),
                                    .gate_weight = memory_of(gate, x_RI),
                                    .up_weight = memory_of(up, x_RI),
                                    .gate = out.gate_RO.mutable_data_ptr(),
                                    .up = out.up_RO.mutable_data_ptr(),
                                    .product = out.product_RO.mutable_data_ptr()});
  return out;
}

Tensor grouped_input_grad(const ExpertOperand& grad, const Parameter& weight, const Tensor& ends_E) {
  if (weight.float8) return float8_grouped_input_grad(grad, weight, ends_E);
  const Tensor& grad_RO = grad.tensor();
  if (takes_grouped_multiply(grad_RO, weight)) return tensor_core_input_grad({grad_RO}, {&weight}, ends_E);
  const Tensor matrices_EOI = weight.in(grad_RO.scalar_type());
  if (takes_grouped_mm(grad_RO, weight)) return at::_grouped_mm(grad_RO, matrices_EOI, ends_E);
  const Tensor grad_RI = at::empty({grad_RO.size(0), matrices_EOI.size(2)}, grad_RO.options());
  multiply_rows(grad_RI, grad_RO, matrices_EOI, ends_E);
  return grad_RI;
}

Tensors grouped_input_grads(const std::vector<ExpertOperand>& grads, const std::vector<Parameter*>& weights,
                            const Tensor& ends_E, bool as_one) {
  if (grads.size() == 2 && pairs_float8_input_grads(grads[0], *weights[0], *weights[1])) {
    return {float8_grouped_input_grad_pair(grads[0], grads[1], *weights[0], *weights[1], ends_E)};
  }
  if (grads.size() == 2 && !weights[0]->float8 && takes_grouped_multiply(grads[0].tensor(), *weights[0]) &&
      takes_grouped_multiply(grads[1].tensor(), *weights[1])) {
    return {tensor_core_input_grad({grads[0].tensor(), grads[1].tensor()}, {weights[0], weights[1]}, ends_E)};
  }
  Tensors parts = {grouped_input_grad(grads[0], *weights[0], ends_E)};
  for (size_t i = 1; i < grads.size(); ++i) {
    if (as_one) {
      add_input_grad(parts[0], grads[i], *weights[i], ends_E);
    } else {
      parts.push_back(grouped_input_grad(grads[i], *weights[i], ends_E));
    }
  }
  return parts;
}

void accumulate_grouped_weight_grad(const ExpertOperand& grad, const ExpertOperand& x, Parameter& weight,
                                    const Tensor& ends_E) {
  const auto add = [=, &weight] {
    if (weight.float8) return float8_add_grouped_weight_grad(grad, x, weight, ends_E);
    add_weight_grad(grad.tensor(), x.tensor(), weight, ends_E);
  };
  if (weight.deferred == nullptr) return add();
  grad.drop_float8_rows(), x.drop_float8_rows();
  weight.deferred->emplace_back([=] {
    const c10::AutoGradMode no_grad(false);
    add();
  });
}

Tensor expert_of_row(const Tensor& ends_E, int64_t rows) {
  return at::searchsorted(ends_E, at::arange(rows, ends_E.options()), /*out_int32=*/false, /*right=*/true);
}

void add_expert_bias(const Tensor& rows_RO, const Parameter& bias, const Tensor& ends_E) {
  rows_RO.add_(bias.in(rows_RO.scalar_type()).index_select(0, expert_of_row(ends_E, rows_RO.size(0))));
}

void accumulate_expert_bias_grad(const Tensor& grad_RO, Parameter& bias, const Tensor& ends_E,
                                 const Tensor& weights_R) {
  if (uses_kernels(grad_RO)) return add_bias_grad_kernel(grad_RO, bias, ends_E, weights_R);
  const Dtype dtype = grad_RO.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor grad_EO = at::zeros({ends_E.size(0), grad_RO.size(1)}, grad_RO.options().dtype(dtype));
  for_each_expert(ends_E, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    const Tensor rows = grad_RO.narrow(0, begin, count).to(dtype);
    grad_EO[expert].copy_((weights_R.defined() ? rows * weights_R.narrow(0, begin, count).unsqueeze(1) : rows).sum(0));
  });
  bias.accumulate(grad_EO);
}

}  // namespace titanium::ops
