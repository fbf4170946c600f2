#include "titanium/ops/norm_qkv_rope.h"

#include <c10/core/GradMode.h>

#include "titanium/ops/linear/float8.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/normalised_rows.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

// The gradients of what the projections gave.
Rotated rotate_back(const Tensors& grads, const NormQkvRopeArgs& args, const UnnormalisedHeads& heads) {
  const bool with_amax = wants_amax(args.wq, args.exchange);
  const Tensor grad_q = own(grads[0]), grad_k = own(grads[1]);
  if (!args.head_norms) return rotate(grad_q, grad_k, args.rope_table, /*inverse=*/true, with_amax, args.pairs);
  return norm_and_rotate_backward(grad_q, grad_k, *args.head_norms, args.rope_table, args.pairs, heads, with_amax);
}

Tensor backward(const Tensors& grads, const Tensor& x_tD, const RmsNormOutput& norm, const NormQkvRopeArgs& args,
                const UnnormalisedHeads& heads) {
  NormalisedRows normalised({x_tD, norm.rstd_T1, norm.amax, args.norm, args.exchange, {&args.wq, &args.wk, &args.wv}});
  const auto flat = [](const Tensor& x_BSHE) { return x_BSHE.flatten(2).flatten(0, 1); };
  const Rotated back = rotate_back(grads, args, heads);
  const LinearGrad grad_q(flat(back.q_BSHE), back.q_amax), grad_k(flat(back.k_BSKE), back.k_amax),
      grad_v(flat(grads[2]));
  const auto input_grad = [&](const Tensors& rows) {
    const Tensor grad_TD = linear_input_grad(grad_q.of(rows[0]), args.wq);
    add_input_grad(grad_TD, grad_k.of(rows[1]), args.wk);
    add_input_grad(grad_TD, grad_v.of(rows[2]), args.wv);
    return grad_TD;
  };
  const Pending grad_tD =
      scatter_mapped(args.exchange, {grad_q.tensor(), grad_k.tensor(), grad_v.tensor()}, input_grad);
  return normalised.backward(grad_tD, /*around_tD=*/grads[3], [&](const LinearInput& normalised_TD) {
    accumulate_weight_grad(grad_q, normalised_TD, args.wq);
    accumulate_weight_grad(grad_k, normalised_TD, args.wk);
    accumulate_weight_grad(grad_v, normalised_TD, args.wv);
    accumulate_bias_grad(grad_q.tensor(), args.biases.q);
    accumulate_bias_grad(grad_k.tensor(), args.biases.k);
    accumulate_bias_grad(grad_v.tensor(), args.biases.v);
  });
}

}  // namespace

Qkv norm_qkv_rope(const Tensor& x_tD, const NormQkvRopeArgs& args) {
  const TraceScope scope("norm_qkv_rope");
  Qkv out;
  RmsNormOutput normalised;
  UnnormalisedHeads heads;
  {
    const c10::AutoGradMode no_grad(false);
    normalised = rms_norm_forward(x_tD, args.norm, args.eps, wants_amax(args.wq, args.exchange));
    const LinearInput input_tD(normalised.y_TD, normalised.amax);
    const Tensors qkv = map_gathered(args.exchange, normalised.y_TD, [&](const Tensors& rows) -> Tensors {
      const LinearInput x = input_tD.of(rows[0]);
      return {linear_forward(x, args.wq, args.biases.q), linear_forward(x, args.wk, args.biases.k),
              linear_forward(x, args.wv, args.biases.v)};
    });
    const auto in_heads = [&](const Tensor& x) {
      return x.view({-1, table_seq_len(args.rope_table), x.size(1) / args.head_dim, args.head_dim});
    };
    const Tensor q_BSHE = in_heads(qkv[0]), k_BSKE = in_heads(qkv[1]);
    const Rotated rotated =
        args.head_norms ? norm_and_rotate(q_BSHE, k_BSKE, *args.head_norms, args.rope_table, args.pairs, heads)
                        : rotate(q_BSHE, k_BSKE, args.rope_table, /*inverse=*/false, /*with_amax=*/false, args.pairs);
    out = {rotated.q_BSHE, rotated.k_BSKE, in_heads(qkv[2]), x_tD.detach()};
  }
  normalised.y_TD = Tensor();  // the backward makes it once more
  record({x_tD}, {out.q_BSHE, out.k_BSKE, out.v_BSKE, out.residual_tD},
         [x_tD = x_tD.detach(), normalised, args, heads](const Tensors& grads) -> Tensors {
           return {backward(grads, x_tD, normalised, args, heads)};
         });
  return out;
}

}  // namespace titanium::ops
