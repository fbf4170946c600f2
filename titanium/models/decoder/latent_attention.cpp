#include "titanium/models/decoder/latent_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

#include "titanium/ops/attention/attend_by_definition.h"
#include "titanium/ops/attention/context_attention.h"
#include "titanium/ops/init.h"
#include "titanium/ops/linear/linear.h"

namespace titanium::models::decoder {
namespace {

// x [B, S, H, I] times a matrix [I, O] of each head, [H, I, O].
Tensor multiply_heads(const Tensor& x_BSHI, const Tensor& weights_HIO) {
  return at::matmul(x_BSHI.transpose(1, 2), weights_HIO).transpose(1, 2);
}

}  // namespace

LatentAttention::LatentAttention(const std::string& fqn, int64_t dim, const LatentArgs& args)
    : args_(args),
      wkv_a_(fqn + ".wkv_a", dim, args.kv_lora_rank + args.qk_rope_head_dim),
      kv_norm_(fqn + ".kv_norm", args.kv_lora_rank, args.latent_norm_eps),
      wkv_b_(fqn + ".wkv_b", args.kv_lora_rank, args.n_heads * (args.qk_nope_head_dim + args.v_head_dim)),
      wo_(fqn + ".wo", args.n_heads * args.v_head_dim, dim) {
  const int64_t queries = args.n_heads * args.qk_head_dim(), rank = args.q_lora_rank;
  if (rank == 0) {
    wq_ = std::make_unique<nn::Linear>(fqn + ".wq", dim, queries);
    add(*wq_);
  } else {
    wq_a_ = std::make_unique<nn::Linear>(fqn + ".wq_a", dim, rank);
    q_norm_ = std::make_unique<nn::RmsNorm>(fqn + ".q_norm", rank, args.latent_norm_eps);
    wq_b_ = std::make_unique<nn::Linear>(fqn + ".wq_b", rank, queries);
    add(*wq_a_);
    add(*q_norm_);
    add(*wq_b_);
  }
  add(wkv_a_);
  add(kv_norm_);
  add(wkv_b_);
  add(wo_);
}

ops::LatentQkvArgs LatentAttention::projection(nn::RmsNorm& norm, const BlockContext& context) {
  std::optional<ops::LatentQueries> queries;
  if (wq_a_) queries.emplace(ops::LatentQueries{wq_a_->weight, q_norm_->weight});
  return {.norm = norm.weight,
          .eps = norm.eps,
          .latent_queries = queries,
          .wq = wq_ ? wq_->weight : wq_b_->weight,
          .wkv_a = wkv_a_.weight,
          .kv_norm = kv_norm_.weight,
          .wkv_b = wkv_b_.weight,
          .latent_eps = args_.latent_norm_eps,
          .nope_dim = args_.qk_nope_head_dim,
          .value_dim = args_.v_head_dim,
          .rope_table = context.rope_table,
          .exchange = context.rows};
}

Tensor LatentAttention::forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) {
  const ops::Qkv qkv = ops::latent_qkv(x_tD, projection(norm, context));
  const ops::Visible visible = {.documents = context.documents};
  const Tensor mixed_BSHV =
      context.sequence == nullptr
          ? ops::attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, visible, softmax())
          : ops::context_attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, visible, *context.sequence, softmax());
  return ops::linear_residual(mixed_BSHV.flatten(0, 1).flatten(1), wo_.weight, qkv.residual_tD, context.rows);
}

Tensor LatentAttention::decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                               nn::KvCache& cache) {
  const ops::LatentTokens fresh = ops::latent_tokens(x_TD, projection(norm, context));
  const Tensor latents_BT1W = cache.append(layer, fresh.latents_BS1W).k_BSKE;
  const int64_t nope = args_.qk_nope_head_dim, rank = args_.kv_lora_rank;
  const Tensor spread_HXR = wkv_b_.weight.in(x_TD.scalar_type()).unflatten(0, {-1, nope + args_.v_head_dim});
  const Tensor q_BSHW = at::cat({multiply_heads(fresh.q_BSHE.narrow(3, 0, nope), spread_HXR.narrow(1, 0, nope)),
                                 fresh.q_BSHE.narrow(3, nope, args_.qk_rope_head_dim)},
                                3);
  const double scale = ops::softmax_scale(fresh.q_BSHE, args_.softmax_scale);
  const Tensor mixed_BSHR =
      ops::attend_by_definition(q_BSHW, latents_BT1W, latents_BT1W.narrow(3, 0, rank), {}, scale).out_BSHV;
  const Tensor mixed_BSHV =
      multiply_heads(mixed_BSHR, spread_HXR.narrow(1, nope, args_.v_head_dim).transpose(1, 2)).contiguous();
  return ops::linear_residual(mixed_BSHV.flatten(0, 1).flatten(1), wo_.weight, x_TD, context.rows);
}

void LatentAttention::init_weights(const InitialWeights& init) {
  for (nn::Linear* linear : {wq_.get(), wq_a_.get(), wq_b_.get(), &wkv_a_, &wkv_b_}) {
    if (linear != nullptr) ops::init_normal(linear->weight, init.seed, 0.02);
  }
  ops::init_normal(wo_.weight, init.seed, init.residual_std);
  ops::init_constant(kv_norm_.weight, 1);
  if (q_norm_) ops::init_constant(q_norm_->weight, 1);
}

// Latents are computed on this rank's rows, so the gradients of what makes them are summed.
parallel::TensorParallelPlan LatentAttention::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  return {{"layers.*.attention.{wq,wq_b,wkv_b}", kByColumn},
          {"layers.*.attention.{wq_a,q_norm,wkv_a,kv_norm}", kOnSequence},
          {"layers.*.attention.wo", kByRow}};
}

int64_t LatentAttention::kept_bytes(Dtype compute) const {
  constexpr int64_t kFloat = 4;
  // q and k, v and the output; the latents before their norms.
  const int64_t heads = 2 * args_.n_heads * (args_.qk_head_dim() + args_.v_head_dim);
  const int64_t latents = args_.q_lora_rank + args_.kv_lora_rank + args_.qk_rope_head_dim;
  // The log-sum-exp, and the rstd of the latents.
  const int64_t floats = args_.n_heads + (args_.q_lora_rank > 0 ? 2 : 1);
  return (heads + latents) * static_cast<int64_t>(c10::elementSize(compute)) + floats * kFloat;
}

}  // namespace titanium::models::decoder
