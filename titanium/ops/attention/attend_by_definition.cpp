#include "titanium/ops/attention/attend_by_definition.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

Dtype precise(Dtype dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// [B, S, H, E] -> [B, K, H/K * S, E]: queries that share a key/value head stand one after the other.
Tensor grouped(const Tensor& x_BSHE, int64_t kv_heads) {
  return x_BSHE.to(precise(x_BSHE.scalar_type())).unflatten(2, {kv_heads, -1}).permute({0, 2, 3, 1, 4}).flatten(2, 3);
}

Tensor ungrouped(const Tensor& x, const Tensor& like_BSHE) {
  const int64_t queries = like_BSHE.size(1);
  return x.unflatten(2, {-1, queries}).permute({0, 3, 1, 2, 4}).flatten(2, 3).to(like_BSHE.scalar_type()).contiguous();
}

Tensor precise_heads_first(const Tensor& x_BTKE) { return x_BTKE.transpose(1, 2).to(precise(x_BTKE.scalar_type())); }

// [B, K, H/K * S, T]
Tensor masked_scores(const Tensor& q, const Tensor& k, const Visible& visible, std::optional<double> scale) {
  const Tensor mask = visible_keys(q.size(0), q.size(1), k.size(1), visible, q.device()).logical_not();
  const Tensor scores =
      at::matmul(grouped(q, k.size(2)), precise_heads_first(k).transpose(2, 3)).mul_(softmax_scale(q, scale));
  scores.unflatten(2, {-1, q.size(1)}).masked_fill_(mask.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return scores;
}

Tensor document_numbers(const Documents& documents, int64_t tokens) {
  const std::vector<int32_t>& boundaries = documents.boundaries;
  TI_ASSERT(boundaries.back() == tokens, "documents of {} tokens for {}", boundaries.back(), tokens);
  const Tensor numbers = at::zeros({tokens}, at::kLong);
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    numbers.narrow(0, boundaries[i], boundaries[i + 1] - boundaries[i]).fill_(static_cast<int64_t>(i));
  }
  return numbers;
}

// A stretch of queries and the keys that one of them can see.
struct Band {
  int64_t first_query, queries, first_key, keys;
  Tensor of_queries(const Tensor& x, int64_t dim = 1) const { return x.narrow(dim, first_query, queries); }
  Tensor of_keys(const Tensor& x) const { return x.narrow(1, first_key, keys); }
};

std::vector<Band> bands_of(int64_t tokens, int64_t window) {
  constexpr int64_t kShortest = 64;
  const int64_t step = std::max(window, kShortest);
  std::vector<Band> bands;
  for (int64_t first = 0; first < tokens; first += step) {
    const int64_t queries = std::min(step, tokens - first), first_key = std::max<int64_t>(0, first - window + 1);
    bands.push_back({first, queries, first_key, first + queries - first_key});
  }
  return bands;
}

}  // namespace

double softmax_scale(const Tensor& q, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

Attended attend_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible,
                              std::optional<double> scale) {
  const Tensor scores = masked_scores(q, k, visible, scale);
  const Tensor log_sum_exp = at::logsumexp(scores, -1);
  const Tensor weights = (scores - log_sum_exp.unsqueeze(3)).exp_();
  return {ungrouped(at::matmul(weights, precise_heads_first(v)), q),
          log_sum_exp.view({q.size(0), q.size(2), q.size(1)}),
          {}};
}

Tensors attend_by_definition_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Attended& attended, const Visible& visible, std::optional<double> scale) {
  const int64_t kv_heads = k.size(2);
  const Tensor log_sum_exp = attended.log_sum_exp_BHS.reshape({q.size(0), kv_heads, -1, 1});
  const Tensor weights = (masked_scores(q, k, visible, scale) - log_sum_exp).exp_();
  const Tensor grad_out = grouped(grad, kv_heads);
  const Tensor row_sums = (grad_out * grouped(attended.out_BSHV, kv_heads)).sum(-1, /*keepdim=*/true);
  const Tensor grad_scores = (at::matmul(grad_out, precise_heads_first(v).transpose(2, 3)) - row_sums)
                                 .mul_(weights)
                                 .mul_(softmax_scale(q, scale));
  const auto keys = [&](const Tensor& x_BKTE) { return x_BKTE.transpose(1, 2).to(k.scalar_type()).contiguous(); };
  return {ungrouped(at::matmul(grad_scores, precise_heads_first(k)), q),
          keys(at::matmul(grad_scores.transpose(2, 3), grouped(q, kv_heads))),
          keys(at::matmul(weights.transpose(2, 3), grad_out))};
}

Attended attend_in_bands(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window,
                         std::optional<double> scale) {
  const int64_t batch = q.size(0), tokens = q.size(1), heads = q.size(2);
  const Attended whole = {at::empty({batch, tokens, heads, v.size(3)}, q.options()),
                          at::empty({batch, heads, tokens}, q.options().dtype(precise(q.scalar_type()))),
                          {}};
  for (const Band& band : bands_of(tokens, window)) {
    const Attended part =
        attend_by_definition(band.of_queries(q), band.of_keys(k), band.of_keys(v), {.window = window}, scale);
    band.of_queries(whole.out_BSHV).copy_(part.out_BSHV);
    band.of_queries(whole.log_sum_exp_BHS, 2).copy_(part.log_sum_exp_BHS);
  }
  return whole;
}

Tensors attend_in_bands_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Attended& attended, int64_t window, std::optional<double> scale) {
  const Dtype dtype = q.scalar_type(), sums = precise(dtype);
  const auto room = [&](const Tensor& x) { return at::zeros(x.sizes(), x.options().dtype(sums)); };
  const Tensors grads = {room(q), room(k), room(v)};
  for (const Band& band : bands_of(q.size(1), window)) {
    const auto queries = [&](const Tensor& x) { return band.of_queries(x).to(sums); };
    const auto keys = [&](const Tensor& x) { return band.of_keys(x).to(sums); };
    const Attended part = {queries(attended.out_BSHV), band.of_queries(attended.log_sum_exp_BHS, 2), {}};
    const Tensors found = attend_by_definition_backward(queries(grad), queries(q), keys(k), keys(v), part,
                                                        {.window = window}, softmax_scale(q, scale));
    band.of_queries(grads[0]).copy_(found[0]);
    band.of_keys(grads[1]).add_(found[1]);
    band.of_keys(grads[2]).add_(found[2]);
  }
  return {grads[0].to(dtype), grads[1].to(dtype), grads[2].to(dtype)};
}

Tensor visible_keys(int64_t batch, int64_t queries, int64_t keys, const Visible& visible, Device device) {
  const auto integers = at::TensorOptions(at::kLong).device(device);
  const Tensor key = at::arange(keys, integers).unsqueeze(0);
  const Tensor query = at::arange(queries, integers).add_(visible.first_query.value_or(keys - queries)).unsqueeze(1);
  Tensor seen = visible.causal ? key <= query : at::ones({queries, keys}, integers.dtype(at::kBool));
  if (visible.window > 0) seen = seen.logical_and(query - key < visible.window);
  if (visible.chunk > 0) {
    seen = seen.logical_and(at::floor_divide(query, visible.chunk) == at::floor_divide(key, visible.chunk));
  }
  if (visible.documents == nullptr) return seen.view({1, 1, queries, keys});
  TI_ASSERT(queries == keys, "{} queries and {} keys inside documents", queries, keys);
  const Tensor numbers = document_numbers(*visible.documents, batch * keys).view({batch, 1, keys}).to(device);
  return seen.logical_and(numbers.unsqueeze(2) == numbers.unsqueeze(3));
}

}  // namespace titanium::ops
