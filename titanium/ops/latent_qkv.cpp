#include "titanium/ops/latent_qkv.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/rms_norm.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

int64_t rope_dim(const LatentQkvArgs& args) { return 2 * args.rope_table.size(-1); }
int64_t latent_dim(const LatentQkvArgs& args) { return args.wkv_b.part.shape[1]; }

// What is saved beside x: the latents before their norms. Queries have none where they are projected at once.
struct Latents {
  Tensor q_tL, q_rstd_t1;
  Tensor kv_tW, kv_rstd_t1;
  Tensor x_amax;  // of what was normalised
};

Tensor latent_columns(const Tensor& x_tW, const LatentQkvArgs& args) { return x_tW.narrow(1, 0, latent_dim(args)); }
Tensor rope_columns(const Tensor& x_tW, const LatentQkvArgs& args) {
  return x_tW.narrow(1, latent_dim(args), rope_dim(args));
}

// [T, H E] -> [B, S, H, E]
Tensor in_heads(const Tensor& x, int64_t head_dim, const LatentQkvArgs& args) {
  return x.view({-1, table_seq_len(args.rope_table), x.size(1) / head_dim, head_dim});
}

// The last P columns of queries [B, S, H, N+P], in place, and of the keys that all heads share, [B, S, 1, P].
Tensor rotate_last(const Tensor& q_BSHE, const Tensor& k_BS1P, const LatentQkvArgs& args, bool inverse) {
  const Tensor q_BSHP = q_BSHE.narrow(3, args.nope_dim, rope_dim(args));
  const Rotated rotated = rotate(q_BSHP.contiguous(), k_BS1P, args.rope_table, inverse);
  q_BSHP.copy_(rotated.q_BSHE);
  return rotated.k_BSKE;
}

// What stands between the last projections and attention, [B, S, ...] each.
struct Heads {
  Tensor q_BSHE, k_BSHE, v_BSHV;
  Tensor kv_BSHX, shared_BS1P;
};

bool takes_kernel(const Tensor& q_BSHE, const LatentQkvArgs& args) {
  constexpr int64_t kWord = 16, kMostWords = 256;
  const int64_t element = q_BSHE.element_size();
  const auto fits = [&](int64_t dim) { return dim * element % kWord == 0; };
  return uses_kernels(q_BSHE) && fits(args.nope_dim) && fits(rope_dim(args)) && fits(args.value_dim) &&
         rope_dim(args) * element <= kWord * kMostWords;
}

void launch_heads(const Heads& heads, const LatentQkvArgs& args, Direction direction) {
  launch(kernels::LatentHeadsArgs{.type = element_type(heads.q_BSHE),
                                  .q = heads.q_BSHE.mutable_data_ptr(),
                                  .k = heads.k_BSHE.mutable_data_ptr(),
                                  .v = heads.v_BSHV.mutable_data_ptr(),
                                  .kv = heads.kv_BSHX.mutable_data_ptr(),
                                  .shared = heads.shared_BS1P.mutable_data_ptr(),
                                  .table = static_cast<const float*>(args.rope_table.const_data_ptr()),
                                  .tokens = heads.q_BSHE.size(0) * heads.q_BSHE.size(1),
                                  .seq_len = table_rows(args.rope_table),
                                  .heads = heads.q_BSHE.size(2),
                                  .nope_dim = args.nope_dim,
                                  .rope_dim = rope_dim(args),
                                  .value_dim = args.value_dim},
         direction);
}

// A tensor with another last dim than `x`.
Tensor beside(const Tensor& x_BSHE, int64_t dim) {
  return at::empty({x_BSHE.size(0), x_BSHE.size(1), x_BSHE.size(2), dim}, x_BSHE.options());
}

Tensor project_queries(const LinearInput& normalised_tD, const LatentQkvArgs& args, Latents& saved) {
  LinearInput input = normalised_tD;
  if (args.latent_queries) {
    saved.q_tL = linear_forward(normalised_tD, args.latent_queries->wq_a);
    const RmsNormOutput out = rms_norm_forward(saved.q_tL, args.latent_queries->q_norm, args.latent_eps);
    saved.q_rstd_t1 = out.rstd_T1;
    input = out.y_TD;
  }
  const Tensor q = map_gathered(args.exchange, input.tensor(), [&](const Tensors& rows) -> Tensors {
    return {linear_forward(input.of(rows[0]), args.wq)};
  })[0];
  return in_heads(q, args.nope_dim + rope_dim(args), args);
}

// The normalised latent of keys and values, and the part of the keys that is still to be rotated, [t, R+P].
Tensor project_latents(const LinearInput& normalised_tD, const LatentQkvArgs& args, Latents& saved) {
  saved.kv_tW = linear_forward(normalised_tD, args.wkv_a);
  const RmsNormOutput out = rms_norm_forward(latent_columns(saved.kv_tW, args), args.kv_norm, args.latent_eps);
  saved.kv_rstd_t1 = out.rstd_T1;
  return at::cat({out.y_TD, rope_columns(saved.kv_tW, args)}, 1);
}

Qkv spread(const Tensor& q_BSHE, const Tensor& latents_tW, const LatentQkvArgs& args) {
  const Tensors all = map_gathered(args.exchange, latents_tW, [&](const Tensors& rows) -> Tensors {
    return {linear_forward(latent_columns(rows[0], args).contiguous(), args.wkv_b),
            rope_columns(rows[0], args).contiguous()};
  });
  const Tensor kv = in_heads(all[0], args.nope_dim + args.value_dim, args);
  const Tensor shared_BS1P = in_heads(all[1], rope_dim(args), args);
  if (takes_kernel(q_BSHE, args)) {
    const Heads heads{q_BSHE, at::empty_like(q_BSHE), beside(q_BSHE, args.value_dim), kv, shared_BS1P};
    launch_heads(heads, args, Direction::kForward);
    return {q_BSHE, heads.k_BSHE, heads.v_BSHV, Tensor()};
  }
  const Tensor k_BS1P = rotate_last(q_BSHE, shared_BS1P, args, /*inverse=*/false);
  const Tensor shared = k_BS1P.expand({-1, -1, kv.size(2), -1});
  return {q_BSHE, at::cat({kv.narrow(3, 0, args.nope_dim), shared}, 3),
          kv.narrow(3, args.nope_dim, args.value_dim).contiguous(), Tensor()};
}

Tensor flat(const Tensor& x_BSHE) { return x_BSHE.flatten(2).flatten(0, 1); }

// Gradients of what the last projections gave, and of the part of the keys that all heads share.
struct HeadGrads {
  Tensor q_TX, kv_TX, shared_TP;
};

HeadGrads heads_backward(const Tensors& grads, const LatentQkvArgs& args) {
  const Tensor q_BSHE = own(grads[0]).contiguous();
  if (takes_kernel(q_BSHE, args)) {
    const Heads heads{q_BSHE, grads[1].contiguous(), grads[2].contiguous(),
                      beside(q_BSHE, args.nope_dim + args.value_dim),
                      at::empty({q_BSHE.size(0), q_BSHE.size(1), 1, rope_dim(args)}, q_BSHE.options())};
    launch_heads(heads, args, Direction::kBackward);
    return {flat(q_BSHE), flat(heads.kv_BSHX), flat(heads.shared_BS1P)};
  }
  const Tensor shared = grads[1].narrow(3, args.nope_dim, rope_dim(args)).sum(2, /*keepdim=*/true);
  const Tensor shared_BS1P = rotate_last(q_BSHE, shared, args, /*inverse=*/true);
  return {flat(q_BSHE), flat(at::cat({grads[1].narrow(3, 0, args.nope_dim), grads[2]}, 3)), flat(shared_BS1P)};
}

// The gradient of the normalised x from that of the latent of queries.
Tensor query_latent_backward(const Tensor& grad_tL, const Latents& saved, const LinearInput& normalised_tD,
                             const LatentQueries& queries) {
  const LinearGrad grad(rms_norm_backward(grad_tL, saved.q_tL, saved.q_rstd_t1, queries.q_norm));
  accumulate_weight_grad(grad, normalised_tD, queries.wq_a);
  return linear_input_grad(grad, queries.wq_a);
}

Tensor kv_latent_backward(const Tensor& grad_tW, const Latents& saved, const LatentQkvArgs& args) {
  return at::cat({rms_norm_backward(latent_columns(grad_tW, args), latent_columns(saved.kv_tW, args), saved.kv_rstd_t1,
                                    args.kv_norm),
                  rope_columns(grad_tW, args)},
                 1);
}

Tensor backward(const Tensors& grads, const Tensor& x_tD, const Tensor& rstd_t1, const Latents& saved,
                const LatentQkvArgs& args) {
  const LinearInput normalised_tD(rms_norm_apply(x_tD, rstd_t1, args.norm), saved.x_amax);
  const LinearInput query_input =
      args.latent_queries ? LinearInput(rms_norm_apply(saved.q_tL, saved.q_rstd_t1, args.latent_queries->q_norm))
                          : normalised_tD;
  const Pending query_rows = args.exchange.gather(query_input.tensor());
  const Pending latent_rows =
      args.exchange.gather(rms_norm_apply(latent_columns(saved.kv_tW, args), saved.kv_rstd_t1, args.kv_norm));
  const HeadGrads heads = heads_backward(grads, args);
  const LinearGrad grad_q(heads.q_TX), grad_kv(heads.kv_TX);
  const Pending query_grad = scatter_mapped(args.exchange, {grad_q.tensor()}, [&](const Tensors& rows) {
    return linear_input_grad(grad_q.of(rows[0]), args.wq);
  });
  const Pending latent_grad = scatter_mapped(
      args.exchange, {grad_kv.tensor(), heads.shared_TP},
      [&](const Tensors& rows) { return at::cat({linear_input_grad(grad_kv.of(rows[0]), args.wkv_b), rows[1]}, 1); });
  // On their way; meanwhile the weights.
  accumulate_weight_grad(grad_q, query_input.of(query_rows()), args.wq);
  accumulate_weight_grad(grad_kv, latent_rows(), args.wkv_b);
  const Tensor grad_tD = args.latent_queries
                             ? query_latent_backward(query_grad(), saved, normalised_tD, *args.latent_queries)
                             : query_grad();
  const LinearGrad grad_kv_a(kv_latent_backward(latent_grad(), saved, args));
  accumulate_weight_grad(grad_kv_a, normalised_tD, args.wkv_a);
  add_input_grad(grad_tD, grad_kv_a, args.wkv_a);
  return rms_norm_backward(grad_tD, x_tD, rstd_t1, args.norm, /*around_TD=*/grads[3]);
}

}  // namespace

Qkv latent_qkv(const Tensor& x_tD, const LatentQkvArgs& args) {
  const TraceScope scope("latent_qkv");
  Qkv out;
  Tensor rstd_t1;
  Latents saved;
  {
    const c10::AutoGradMode no_grad(false);
    const RmsNormOutput normalised = rms_norm_forward(x_tD, args.norm, args.eps, wants_amax(args.wkv_a, args.exchange));
    rstd_t1 = normalised.rstd_T1;
    saved.x_amax = normalised.amax;
    const LinearInput input_tD(normalised.y_TD, normalised.amax);
    const Tensor q_BSHE = project_queries(input_tD, args, saved);
    out = spread(q_BSHE, project_latents(input_tD, args, saved), args);
    out.residual_tD = x_tD.detach();
  }
  record({x_tD}, {out.q_BSHE, out.k_BSKE, out.v_BSKE, out.residual_tD},
         [x_tD = x_tD.detach(), rstd_t1, saved, args](const Tensors& grads) -> Tensors {
           return {backward(grads, x_tD, rstd_t1, saved, args)};
         });
  return out;
}

LatentTokens latent_tokens(const Tensor& x_tD, const LatentQkvArgs& args) {
  const c10::AutoGradMode no_grad(false);
  Latents unused;
  const Tensor normalised_tD = rms_norm_forward(x_tD, args.norm, args.eps).y_TD;
  const Tensor q_BSHE = project_queries(normalised_tD, args, unused);
  const Tensor latents_TW = args.exchange.gather(project_latents(normalised_tD, args, unused))();
  const Tensor k_BS1P =
      rotate_last(q_BSHE, in_heads(rope_columns(latents_TW, args).contiguous(), rope_dim(args), args), args, false);
  const Tensor latents_BS1R = in_heads(latent_columns(latents_TW, args).contiguous(), latent_dim(args), args);
  return {q_BSHE, at::cat({latents_BS1R, k_BS1P}, 3)};
}

}  // namespace titanium::ops
