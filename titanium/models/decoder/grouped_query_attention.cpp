#include "titanium/models/decoder/grouped_query_attention.h"

#include "titanium/ops/attention/context_attention.h"
#include "titanium/ops/init.h"
#include "titanium/ops/linear/linear.h"

namespace titanium::models::decoder {

GroupedQueryAttention::GroupedQueryAttention(const std::string& fqn, int64_t dim, const HeadArgs& args)
    : args_(args),
      wq_(fqn + ".wq", dim, args.n_heads * args.head_dim),
      wk_(fqn + ".wk", dim, args.n_kv_heads * args.head_dim),
      wv_(fqn + ".wv", dim, args.n_kv_heads * args.head_dim),
      wo_(fqn + ".wo", args.n_heads * args.head_dim, dim) {
  for (const nn::Linear* linear : {&wq_, &wk_, &wv_, &wo_}) add(*linear);
}

ops::NormQkvRopeArgs GroupedQueryAttention::projection(nn::RmsNorm& norm, const BlockContext& context) {
  return {norm.weight, norm.eps, wq_.weight, wk_.weight, wv_.weight, args_.head_dim, context.rope_table, context.rows};
}

Tensor GroupedQueryAttention::forward(const Tensor& x_tD, nn::RmsNorm& norm, const BlockContext& context) {
  const ops::Qkv qkv = ops::norm_qkv_rope(x_tD, projection(norm, context));
  const Tensor mixed_BSHE = context.sequence == nullptr
                                ? ops::attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE, {.documents = context.documents})
                                : ops::context_attention(qkv.q_BSHE, qkv.k_BSKE, qkv.v_BSKE,
                                                         {.documents = context.documents}, *context.sequence);
  const Tensor mixed_TD = mixed_BSHE.flatten(0, 1).flatten(1);
  return ops::linear_residual(mixed_TD, wo_.weight, qkv.residual_tD, context.rows);
}

Tensor GroupedQueryAttention::decode(const Tensor& x_TD, nn::RmsNorm& norm, const BlockContext& context, int64_t layer,
                                     nn::KvCache& cache) {
  const ops::Qkv fresh = ops::norm_qkv_rope(x_TD, projection(norm, context));
  const auto [k_BSKE, v_BSKE] = cache.append(layer, fresh.k_BSKE, fresh.v_BSKE);
  const Tensor mixed_BSHE = ops::attention_by_definition(fresh.q_BSHE, k_BSKE, v_BSKE);
  const Tensor mixed_TD = mixed_BSHE.flatten(0, 1).flatten(1);
  return ops::linear_residual(mixed_TD, wo_.weight, x_TD, context.rows);
}

void GroupedQueryAttention::init_weights(const InitialWeights& init) {
  for (nn::Linear* linear : {&wq_, &wk_, &wv_}) ops::init_normal(linear->weight, init.seed, 0.02);
  ops::init_normal(wo_.weight, init.seed, init.residual_std);
}

parallel::TensorParallelPlan GroupedQueryAttention::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  return {{"layers.*.attention.{wq,wk,wv}", kByColumn}, {"layers.*.attention.wo", kByRow}};
}

std::vector<CutSize> GroupedQueryAttention::cut_sizes() const {
  return {{"heads", args_.n_heads}, {"key/value heads", args_.n_kv_heads}};
}

int64_t GroupedQueryAttention::kept_bytes(Dtype compute) const {
  constexpr int64_t kFloat = 4;
  // q and the output, k and v; the log-sum-exp.
  const int64_t elements = 2 * (args_.n_heads + args_.n_kv_heads) * args_.head_dim;
  return elements * static_cast<int64_t>(c10::elementSize(compute)) + args_.n_heads * kFloat;
}

}  // namespace titanium::models::decoder
