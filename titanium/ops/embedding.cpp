#include "titanium/ops/embedding.h"

#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sort.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

// The tokens as rows of this rank's part of the table. Those of other ranks point to row 0 and are marked.
struct LocalTokens {
  Tensor rows_T;
  Tensor elsewhere_T1;  // undefined: none
};

LocalTokens local_tokens(const Tensor& tokens_T, const Parameter& table_VD) {
  if (table_VD.rows() == table_VD.global_shape[0]) return {tokens_T, {}};
  const Tensor rows_T = tokens_T - table_VD.part.offset[0];
  const Tensor elsewhere_T = rows_T.lt(0).logical_or_(rows_T.ge(table_VD.rows()));
  return {rows_T.masked_fill(elsewhere_T, 0), elsewhere_T.unsqueeze(1)};
}

// Adds to the rows of the sum that the tokens name. Note [Sorted tokens].
void accumulate_rows(const Tensor& grad_TD, const Tensor& tokens_T, Parameter& table_VD) {
  const auto [sum_VD, is_first] = table_VD.open_grad_sum(grad_TD.device());
  if (is_first) sum_VD.zero_();
  const auto [sorted_T, order_T] = at::sort(tokens_T, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const kernels::EmbeddingGradArgs args{.dy_type = element_type(grad_TD),
                                        .dtable_type = element_type(sum_VD),
                                        .dy = grad_TD.const_data_ptr(),
                                        .sorted_ids = sorted_T.const_data_ptr<int64_t>(),
                                        .order = order_T.const_data_ptr<int64_t>(),
                                        .dtable = sum_VD.mutable_data_ptr(),
                                        .first_id = table_VD.part.offset[0],
                                        .table_rows = table_VD.rows(),
                                        .tokens = grad_TD.size(0),
                                        .dim = grad_TD.size(1),
                                        .scratch = nullptr};
  launch_with_scratch(args, grad_TD);
}

void accumulate_grad(const Tensor& grad_TD, const Tensor& tokens_T, const LocalTokens& local, Parameter& table_VD) {
  if (uses_kernels(grad_TD) && kernels_have(table_VD.value.scalar_type()))
    return accumulate_rows(grad_TD, tokens_T, table_VD);
  Tensor grad = grad_TD.to(table_VD.value.scalar_type());
  if (local.elsewhere_T1.defined()) grad = grad.masked_fill(local.elsewhere_T1, 0);
  table_VD.accumulate(at::embedding_dense_backward(grad, local.rows_T, table_VD.rows(), -1, false));
}

}  // namespace

Tensor embedding(const Tensor& tokens_T, Parameter& table_VD, Dtype dtype, RowExchange& exchange) {
  const TraceScope scope("embedding");
  Tensor x_tD;
  const LocalTokens local = local_tokens(tokens_T, table_VD);
  {
    const c10::AutoGradMode no_grad(false);
    const Tensor x_TD = at::index_select(table_VD.as_stored(), 0, local.rows_T).to(dtype);
    if (local.elsewhere_T1.defined()) x_TD.masked_fill_(local.elsewhere_T1, 0);
    x_tD = exchange.reduce_scatter(x_TD)();
  }
  record({table_VD.value}, {x_tD}, [tokens_T, local, &table_VD, &exchange](const Tensors& grads) -> Tensors {
    accumulate_grad(exchange.gather(grads[0].contiguous())(), tokens_T, local, table_VD);
    return {Tensor()};  // Note [Gradients are ours]
  });
  return x_tD;
}

}  // namespace titanium::ops
