#include "titanium/ops/norm_qkv_rope.h"

#include "titanium/ops/linear.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/rope.h"

namespace titanium::ops {
namespace {

Tensor backward(const Tensors& grads, const Tensor& x_TD, const Tensor& rstd_T1, const NormQkvRopeArgs& args) {
  const auto flat = [](const Tensor& x_BSHE) { return x_BSHE.flatten(2).flatten(0, 1); };
  const Tensor grad_q = flat(apply_rope(grads[0], args.rope_table, /*inverse=*/true));
  const Tensor grad_k = flat(apply_rope(grads[1], args.rope_table, /*inverse=*/true));
  const Tensor grad_v = flat(grads[2]);
  const Tensor normalised_TD = rms_norm_apply(x_TD, rstd_T1, args.norm);
  accumulate_weight_grad(grad_q, normalised_TD, args.wq);
  accumulate_weight_grad(grad_k, normalised_TD, args.wk);
  accumulate_weight_grad(grad_v, normalised_TD, args.wv);
  Tensor grad_TD = linear_input_grad(grad_q, args.wq);
  add_input_grad(grad_TD, grad_k, args.wk);
  add_input_grad(grad_TD, grad_v, args.wv);
  return rms_norm_backward(grad_TD, x_TD, rstd_T1, args.norm);
}

}  // namespace

Qkv norm_qkv_rope(const Tensor& x_TD, const NormQkvRopeArgs& args) {
  Qkv out;
  Tensor rstd_T1;
  {
    const c10::AutoGradMode no_grad(false);
    const int64_t seq_len = args.rope_table.size(0);
    const RmsNormOutput normalised = rms_norm_forward(x_TD, args.norm, args.eps);
    rstd_T1 = normalised.rstd_T1;
    const auto project = [&](const Parameter& weight) {
      return linear_forward(normalised.y_TD, weight)
          .view({-1, seq_len, weight.value.size(0) / args.head_dim, args.head_dim});
    };
    out = {apply_rope(project(args.wq), args.rope_table), apply_rope(project(args.wk), args.rope_table),
           project(args.wv)};
  }
  record({x_TD}, {out.q_BSHE, out.k_BSKE, out.v_BSKE},
         [x_TD = x_TD.detach(), rstd_T1, args](const Tensors& grads) -> Tensors {
           return {backward(grads, x_TD, rstd_T1, args)};
         });
  return out;
}

}  // namespace titanium::ops
