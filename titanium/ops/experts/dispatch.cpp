#include "titanium/ops/experts/dispatch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"

namespace titanium::ops {
namespace {

Dtype wide(Dtype dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

bool takes_kernel(const Tensor& experts_TK, int64_t experts) {
  return runs_kernels(experts_TK.device()) && experts <= kernels::kMostSortedExperts;
}

Dispatch sort_kernel(const Tensor& experts_TK, int64_t experts) {
  const Tensor flat_R = experts_TK.flatten();
  const Dispatch dispatch{at::empty_like(flat_R), at::empty_like(flat_R), at::empty({experts}, flat_R.options())};
  const kernels::SortByExpertArgs args{.experts = flat_R.const_data_ptr<int32_t>(),
                                       .row_of_choice = dispatch.row_of_choice_R.mutable_data_ptr<int32_t>(),
                                       .choice_of_row = dispatch.choice_of_row_R.mutable_data_ptr<int32_t>(),
                                       .ends = dispatch.ends_E.mutable_data_ptr<int32_t>(),
                                       .choices = flat_R.numel(),
                                       .num_experts = experts,
                                       .scratch = nullptr};
  launch_with_scratch(args, flat_R);
  return dispatch;
}

const float* memory_of(const Tensor& weights) { return weights.defined() ? weights.const_data_ptr<float>() : nullptr; }

Tensor gather_kernel(const Tensor& x_TD, const Dispatch& dispatch, int64_t top_k, const Tensor& weights_TK) {
  const Tensor rows_RD = at::empty({dispatch.row_of_choice_R.size(0), x_TD.size(1)}, x_TD.options());
  launch(kernels::GatherRowsArgs{.type = element_type(x_TD),
                                 .x = x_TD.const_data_ptr(),
                                 .row_of_choice = dispatch.row_of_choice_R.const_data_ptr<int32_t>(),
                                 .weights = memory_of(weights_TK),
                                 .rows = rows_RD.mutable_data_ptr(),
                                 .tokens = x_TD.size(0),
                                 .top_k = top_k,
                                 .dim = x_TD.size(1)});
  return rows_RD;
}

const void* any_memory_of(const Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

Tensor combine_kernel(const Tensor& rows_RD, const Dispatch& dispatch, int64_t top_k, const Combination& with) {
  const int64_t tokens = rows_RD.size(0) / top_k, dim = rows_RD.size(1);
  const Tensor sum_TD = at::empty({tokens, dim}, rows_RD.options());
  launch(
      kernels::CombineRowsArgs{.type = element_type(rows_RD),
                               .rows = rows_RD.const_data_ptr(),
                               .row_of_choice = dispatch.row_of_choice_R.const_data_ptr<int32_t>(),
                               .weights = memory_of(with.weights_TK),
                               .addend = any_memory_of(with.added_TD),
                               .y = sum_TD.mutable_data_ptr(),
                               .tokens = tokens,
                               .top_k = top_k,
                               .dim = dim,
                               .bias = any_memory_of(with.bias_ED),
                               .experts = with.bias_ED.defined() ? with.experts_TK.const_data_ptr<int32_t>() : nullptr,
                               .more_rows = any_memory_of(with.more_RD)});
  return sum_TD;
}

}  // namespace

Tensor Dispatch::counts() const { return at::diff(ends_E, /*n=*/1, /*dim=*/0, at::zeros({1}, ends_E.options())); }

Dispatch sort_by_expert(const Tensor& experts_TK, int64_t experts) {
  if (takes_kernel(experts_TK, experts)) return sort_kernel(experts_TK, experts);
  const Tensor flat_R = experts_TK.flatten();
  const auto [sorted_R, order_R] = at::sort(flat_R, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor row_of_choice_R = at::empty_like(flat_R);
  row_of_choice_R.scatter_(0, order_R, at::arange(flat_R.numel(), flat_R.options()));
  const Tensor ends_E =
      at::searchsorted(sorted_R, at::arange(experts, flat_R.options()), /*out_int32=*/true, /*right=*/true);
  return {row_of_choice_R, order_R.to(at::kInt), ends_E};
}

Dispatch order_parts(const Tensor& counts_nE, int64_t rows) {
  const int64_t sources = counts_nE.size(0), experts = counts_nE.size(1);
  if (runs_kernels(counts_nE.device())) {
    const auto numbers = [&](int64_t count) { return at::empty({count}, counts_nE.options()); };
    const Tensor counts = counts_nE.contiguous();
    const Dispatch order{numbers(rows), numbers(rows), numbers(experts)};
    launch(kernels::OrderPartsArgs{.counts = counts.const_data_ptr<int32_t>(),
                                   .row_of_arrival = order.row_of_choice_R.mutable_data_ptr<int32_t>(),
                                   .arrival_of_row = order.choice_of_row_R.mutable_data_ptr<int32_t>(),
                                   .ends = order.ends_E.mutable_data_ptr<int32_t>(),
                                   .sources = sources,
                                   .experts = experts});
    return order;
  }
  const Tensor expert_of_part = at::arange(experts, counts_nE.options()).repeat({sources});
  return sort_by_expert(expert_of_part.repeat_interleave(counts_nE.flatten().to(at::kLong), 0, rows), experts);
}

Tensor gather_rows(const Tensor& x_TD, const Dispatch& dispatch, const Tensor& weights_TK) {
  const int64_t top_k = x_TD.size(0) == 0 ? 1 : dispatch.choice_of_row_R.size(0) / x_TD.size(0);
  if (uses_kernels(x_TD)) return gather_kernel(x_TD.contiguous(), dispatch, top_k, weights_TK);
  Tensor rows_RD = x_TD.index_select(0, dispatch.choice_of_row_R.div(top_k, "floor"));
  if (!weights_TK.defined()) return rows_RD;
  const Tensor weights_R1 = weights_TK.flatten().index_select(0, dispatch.choice_of_row_R).unsqueeze(1);
  return (rows_RD.to(wide(x_TD.scalar_type())) * weights_R1).to(x_TD.scalar_type());
}

Tensor take_rows(const Tensor& x_RC, const Tensor& index_R) {
  if (!uses_kernels(x_RC)) return x_RC.index_select(0, index_R);
  const Tensor x = x_RC.contiguous(), taken = at::empty({index_R.size(0), x.size(1)}, x.options());
  launch(kernels::TakeRowsArgs{.x = x.const_data_ptr(),
                               .index = index_R.const_data_ptr<int32_t>(),
                               .y = taken.mutable_data_ptr(),
                               .rows = index_R.size(0),
                               .row_bytes = x.size(1) * x.element_size()});
  return taken;
}

Tensor combine_rows(const Tensor& rows_RD, const Dispatch& dispatch, int64_t top_k, const Combination& with) {
  if (uses_kernels(rows_RD)) return combine_kernel(rows_RD.contiguous(), dispatch, top_k, with);
  const Dtype sum_dtype = wide(rows_RD.scalar_type());
  const auto by_choice = [&](const Tensor& rows) {
    return rows.index_select(0, dispatch.row_of_choice_R).to(sum_dtype);
  };
  Tensor terms_RD = by_choice(rows_RD);
  if (with.more_RD.defined()) terms_RD = terms_RD + by_choice(with.more_RD);
  if (with.bias_ED.defined()) terms_RD = terms_RD + with.bias_ED.index_select(0, with.experts_TK.flatten());
  const Tensor by_choice_TKD = terms_RD.unflatten(0, {-1, top_k});
  Tensor sum_TD =
      with.added_TD.defined() ? with.added_TD.to(sum_dtype, /*non_blocking=*/false, /*copy=*/true) : Tensor();
  for (int64_t k = 0; k < top_k; ++k) {
    const Tensor rows_TD = by_choice_TKD.select(1, k);
    const Tensor term_TD = with.weights_TK.defined() ? rows_TD * with.weights_TK.narrow(1, k, 1) : rows_TD;
    sum_TD = sum_TD.defined() ? sum_TD.add_(term_TD) : term_TD.clone();
  }
  return sum_TD.to(rows_RD.scalar_type());
}

}  // namespace titanium::ops
