#include "titanium/ops/embedding.h"

#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/index_select.h>

namespace titanium::ops {

Tensor embedding(const Tensor& tokens_T, Parameter& table_VD, Dtype dtype) {
  Tensor x_TD;
  {
    const c10::AutoGradMode no_grad(false);
    x_TD = at::index_select(table_VD.value, 0, tokens_T).to(dtype);
  }
  record({table_VD.value}, {x_TD}, [tokens_T, &table_VD](const Tensors& grads) -> Tensors {
    const Tensor grad_TD = grads[0].to(table_VD.value.scalar_type());
    table_VD.accumulate(at::embedding_dense_backward(grad_TD, tokens_T, table_VD.value.size(0), -1, false));
    return {Tensor()};  // Note [Gradients are ours]
  });
  return x_TD;
}

}  // namespace titanium::ops
