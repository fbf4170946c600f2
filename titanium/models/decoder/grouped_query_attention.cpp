#include "titanium/models/decoder/grouped_query_attention.h"

#include <ATen/ops/arange.h>

#include "titanium/ops/attention/context_attention.h"
#include "titanium/ops/init.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/scale_heads.h"

namespace titanium::models::decoder {
namespace {

// The positions of this rank's tokens in fp32: [S] for all sequences alike, or [B, S].
Tensor positions_of(const BlockContext& context, int64_t first) {
  if (context.positions_BS.defined()) return context.positions_BS.to(at::kFloat);
  const int64_t here = ops::table_seq_len(context.rope_table);
  const auto floats = at::TensorOptions(at::kFloat).device(context.rope_table.device());
  if (context.sequence == nullptr) return at::arange(first, first + here, floats);
  return ops::share_of(at::arange(here * context.sequence->share().ranks, floats), 0, context.sequence->share());
}

// The factors on the queries at these positions.
Tensor temperatures(const QueryTemperature& temperature, const Tensor& positions) {
  return ((positions + 1) / temperature.floor_scale).floor_().log1p_().mul_(temperature.attn_scale).add_(1);
}

}  // namespace

GroupedQueryAttention::GroupedQueryAttention(const std::string& fqn, int64_t dim, const HeadArgs& args,
                                             const AttentionOptions& options)
    : args_(args),
      wq_(fqn + ".wq", dim, args.n_heads * args.head_dim, options.biases),
      wk_(fqn + ".wk", dim, args.n_kv_heads * args.head_dim, options.biases),
      wv_(fqn + ".wv", dim, args.n_kv_heads * args.head_dim, options.biases),
      wo_(fqn + ".wo", args.n_heads * args.head_dim, dim, options.biases),
      options_(options) {
  for (const nn::Linear* linear : {&wq_, &wk_, &wv_, &wo_}) add(*linear);
  if (!options.sinks) return;
  sinks_ = std::make_unique<Parameter>(fqn + ".sinks", Shape{args.n_heads});
  add(*sinks_);
}

ops::NormQkvRopeArgs GroupedQueryAttention::projection(nn::RmsNorm& norm, const BlockContext& context) {
  return {.norm = norm.weight,
          .eps = norm.eps,
          .wq = wq_.weight,
          .wk = wk_.weight,
          .wv = wv_.weight,
          .head_dim = args_.head_dim,
          .rope_table = context.rope_table,
          .exchange = context.rows,
          .pairs = options_.pairs,
          .biases = {wq_.bias.get(), wk_.bias.get(), wv_.bias.get()}};
}

ops::Qkv GroupedQueryAttention::project(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context,
                                        int64_t first) {
  ops::Qkv qkv = ops::norm_qkv_rope(x_tD, projection(norm, context));
  if (options_.head_norm_eps) {
    qkv.q_BSHE = ops::normalise_heads(qkv.q_BSHE, *options_.head_norm_eps);
    qkv.k_BSKE = ops::normalise_heads(qkv.k_BSKE, *options_.head_norm_eps);
  }
  if (options_.temperature) {
    qkv.q_BSHE = ops::scale_tokens(qkv.q_BSHE, temperatures(*options_.temperature, positions_of(context, first)));
  }
  return qkv;
}

ops::Visible GroupedQueryAttention::visible(const ops::DocumentsPtr& documents) const {
  return {.documents = documents, .window = options_.window, .chunk = options_.chunk};
}

Tensor GroupedQueryAttention::forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) {
  const ops::Qkv qkv = project(x_tD, norm, context, /*first=*/0);
  const ops::Visible seen = visible(context.documents);
  const ops::SoftmaxArgs softmax = {.sinks = sinks_.get()};
  const Tensor mixed_BSHE =
      context.sequence == nullptr
          ? ops::attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, seen, softmax)
          : ops::context_attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, seen, *context.sequence, softmax);
  const Tensor mixed_TD = mixed_BSHE.flatten(0, 1).flatten(1);
  return ops::linear_residual(mixed_TD, wo_.weight, qkv.residual_tD, context.rows, wo_.bias.get());
}

Tensor GroupedQueryAttention::decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                                     nn::KvCache& cache) {
  const ops::Qkv fresh = project(x_TD, norm, context, cache.length());
  const auto [k_BSKE, v_BSKE] = cache.append(layer, fresh.k_BSKE, fresh.v_BSKE);
  const Tensor sinks_H = sinks_ ? sinks_->as_stored() : Tensor();
  const Tensor mixed_BSHE =
      ops::attention_by_definition(fresh.q_BSHE, k_BSKE, v_BSKE, visible(nullptr), std::nullopt, sinks_H);
  const Tensor mixed_TD = mixed_BSHE.flatten(0, 1).flatten(1);
  return ops::linear_residual(mixed_TD, wo_.weight, x_TD, context.rows, wo_.bias.get());
}

void GroupedQueryAttention::init_weights(const InitialWeights& init) {
  const double std = options_.same_deviation ? init.residual_std : 0.02;
  for (nn::Linear* linear : {&wq_, &wk_, &wv_}) ops::init_normal(linear->weight, init.seed, std);
  ops::init_normal(wo_.weight, init.seed, init.residual_std);
  for (nn::Linear* linear : {&wq_, &wk_, &wv_, &wo_}) {
    if (linear->bias) ops::init_normal(*linear->bias, init.seed, std);
  }
  if (sinks_) ops::init_normal(*sinks_, init.seed, std);
}

parallel::TensorParallelPlan GroupedQueryAttention::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  parallel::TensorParallelPlan plan = {{"layers.*.attention.{wq,wk,wv}", kByColumn}, {"layers.*.attention.wo", kByRow}};
  if (wo_.bias) plan.push_back({"layers.*.attention.wo.bias", kOnSequence});
  if (sinks_) plan.push_back({"layers.*.attention.sinks", kByColumn});
  return plan;
}

std::vector<CutSize> GroupedQueryAttention::cut_sizes() const {
  return {{"heads", args_.n_heads}, {"key/value heads", args_.n_kv_heads}};
}

int64_t GroupedQueryAttention::kept_bytes(Dtype compute) const {
  constexpr int64_t kFloat = 4;
  // q and the output, k and v; the log-sum-exp, and the rstd of normalised heads.
  const int64_t elements = 2 * (args_.n_heads + args_.n_kv_heads) * args_.head_dim;
  const int64_t floats = args_.n_heads + (options_.head_norm_eps ? args_.n_heads + args_.n_kv_heads : 0);
  return elements * static_cast<int64_t>(c10::elementSize(compute)) + floats * kFloat;
}

}  // namespace titanium::models::decoder
