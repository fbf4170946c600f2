#include "titanium/ops/embedding.h"

#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/index_select.h>

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

}  // namespace

Tensor embedding(const Tensor& tokens_T, Parameter& table_VD, Dtype dtype, RowExchange& exchange) {
  Tensor x_tD;
  const LocalTokens local = local_tokens(tokens_T, table_VD);
  {
    const c10::AutoGradMode no_grad(false);
    const Tensor x_TD = at::index_select(table_VD.as_stored(), 0, local.rows_T).to(dtype);
    if (local.elsewhere_T1.defined()) x_TD.masked_fill_(local.elsewhere_T1, 0);
    x_tD = exchange.reduce_scatter(x_TD)();
  }
  record({table_VD.value}, {x_tD}, [local, &table_VD, &exchange](const Tensors& grads) -> Tensors {
    Tensor grad_TD = exchange.gather(grads[0].contiguous())().to(table_VD.value.scalar_type());
    if (local.elsewhere_T1.defined()) grad_TD = grad_TD.masked_fill(local.elsewhere_T1, 0);
    table_VD.accumulate(at::embedding_dense_backward(grad_TD, local.rows_T, table_VD.rows(), -1, false));
    return {Tensor()};  // Note [Gradients are ours]
  });
  return x_tD;
}

}  // namespace titanium::ops
