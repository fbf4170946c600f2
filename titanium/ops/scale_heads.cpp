#include "titanium/ops/scale_heads.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <c10/core/GradMode.h>

#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

Dtype precise(Dtype dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

Tensor times_tokens(const Tensor& x_BSHE, const Tensor& factors) {
  return x_BSHE.mul(factors.unsqueeze(-1).unsqueeze(-1)).to(x_BSHE.scalar_type());
}

}  // namespace

Tensor normalise_heads(const Tensor& x_BSHE, double eps) {
  const TraceScope scope("normalise_heads");
  Tensor y_BSHE, rstd_BSH1;
  {
    const c10::AutoGradMode no_grad(false);
    const Tensor x = x_BSHE.to(precise(x_BSHE.scalar_type()));
    rstd_BSH1 = x.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
    y_BSHE = (x * rstd_BSH1).to(x_BSHE.scalar_type());
  }
  record({x_BSHE}, {y_BSHE}, [y_BSHE = y_BSHE.detach(), rstd_BSH1](const Tensors& grads) -> Tensors {
    const Tensor y = y_BSHE.to(rstd_BSH1.scalar_type()), grad = grads[0].to(rstd_BSH1.scalar_type());
    const Tensor along_y = (grad * y).mean(-1, /*keepdim=*/true);
    return {(grad - y * along_y).mul_(rstd_BSH1).to(y_BSHE.scalar_type())};
  });
  return y_BSHE;
}

Tensor scale_tokens(const Tensor& x_BSHE, const Tensor& factors) {
  const TraceScope scope("scale_tokens");
  Tensor y_BSHE;
  {
    const c10::AutoGradMode no_grad(false);
    y_BSHE = times_tokens(x_BSHE, factors);
  }
  record({x_BSHE}, {y_BSHE}, [factors](const Tensors& grads) -> Tensors { return {times_tokens(grads[0], factors)}; });
  return y_BSHE;
}

}  // namespace titanium::ops
