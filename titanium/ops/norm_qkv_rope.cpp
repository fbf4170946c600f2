#include "titanium/ops/norm_qkv_rope.h"

#include "titanium/ops/linear.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/ops/rope.h"

namespace titanium::ops {
namespace {

Tensor backward(const Tensors& grads, const Tensor& x_tD, const Tensor& rstd_t1, const NormQkvRopeArgs& args) {
  const Pending normalised = args.exchange.gather(rms_norm_apply(x_tD, rstd_t1, args.norm));
  const auto flat = [](const Tensor& x_BSHE) { return x_BSHE.flatten(2).flatten(0, 1); };
  const Rotated back = rotate(own(grads[0]), own(grads[1]), args.rope_table, /*inverse=*/true);
  const Tensor grad_q = flat(back.q_BSHE);
  const Tensor grad_k = flat(back.k_BSKE);
  const Tensor grad_v = flat(grads[2]);
  const auto input_grad = [&](const Tensors& rows) {
    Tensor grad_TD = linear_input_grad(rows[0], args.wq);
    add_input_grad(grad_TD, rows[1], args.wk);
    add_input_grad(grad_TD, rows[2], args.wv);
    return grad_TD;
  };
  const Pending grad_tD = scatter_mapped(args.exchange, {grad_q, grad_k, grad_v}, input_grad);
  // On its way; meanwhile the weights.
  const Tensor normalised_TD = normalised();
  accumulate_weight_grad(grad_q, normalised_TD, args.wq);
  accumulate_weight_grad(grad_k, normalised_TD, args.wk);
  accumulate_weight_grad(grad_v, normalised_TD, args.wv);
  return rms_norm_backward(grad_tD(), x_tD, rstd_t1, args.norm, /*around_TD=*/grads[3]);
}

}  // namespace

Qkv norm_qkv_rope(const Tensor& x_tD, const NormQkvRopeArgs& args) {
  Qkv out;
  Tensor rstd_t1;
  {
    const c10::AutoGradMode no_grad(false);
    const RmsNormOutput normalised = rms_norm_forward(x_tD, args.norm, args.eps);
    rstd_t1 = normalised.rstd_T1;
    const Tensors qkv = map_gathered(args.exchange, normalised.y_TD, [&](const Tensors& rows) -> Tensors {
      return {linear_forward(rows[0], args.wq), linear_forward(rows[0], args.wk), linear_forward(rows[0], args.wv)};
    });
    const auto in_heads = [&](const Tensor& x) {
      return x.view({-1, args.rope_table.size(0), x.size(1) / args.head_dim, args.head_dim});
    };
    const Rotated rotated = rotate(in_heads(qkv[0]), in_heads(qkv[1]), args.rope_table);
    out = {rotated.q_BSHE, rotated.k_BSKE, in_heads(qkv[2]), x_tD.detach()};
  }
  record({x_tD}, {out.q_BSHE, out.k_BSKE, out.v_BSKE, out.residual_tD},
         [x_tD = x_tD.detach(), rstd_t1, args](const Tensors& grads) -> Tensors {
           return {backward(grads, x_tD, rstd_t1, args)};
         });
  return out;
}

}  // namespace titanium::ops
