#include "titanium/ops/attention/attend.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"
#include "titanium/ops/attention/attention_library.h"

namespace titanium::ops {
namespace {

Tensor heads_first(const Tensor& x_BSHE) { return x_BSHE.transpose(1, 2); }

Dtype precise(Dtype dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// --- CPU: ATen's flash attention, one causal call per document (or one for the whole batch) ---

// Calls f(first row, rows of the batch, first token, length) for every piece that one call can handle.
template <typename F>
void for_each_piece(const Tensor& q_BSHE, const DocumentsPtr& documents, F&& f) {
  const int64_t seq_len = q_BSHE.size(1);
  if (documents == nullptr) {
    f(0, q_BSHE.size(0), 0, seq_len);
    return;
  }
  for (size_t i = 0; i + 1 < documents->boundaries.size(); ++i) {
    const int64_t first = documents->boundaries[i];
    f(first / seq_len, 1, first % seq_len, documents->boundaries[i + 1] - first);
  }
}

// [B, S, H, E] -> [b, H, s, E]; without documents everything, keys of another length than the queries included.
Tensor piece(const Tensor& x_BSHE, const DocumentsPtr& documents, int64_t row, int64_t rows, int64_t first,
             int64_t length) {
  if (documents == nullptr) return heads_first(x_BSHE);
  return heads_first(x_BSHE.narrow(0, row, rows).narrow(1, first, length));
}

Attended cpu_attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible) {
  Attended attended;
  const DocumentsPtr& documents = visible.documents;
  if (documents != nullptr) {
    attended.out_BSHE = at::empty_like(q, at::MemoryFormat::Contiguous);
    attended.log_sum_exp_BHS =
        at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(precise(q.scalar_type())));
  }
  for_each_piece(q, documents, [&](int64_t row, int64_t rows, int64_t first, int64_t length) {
    const auto cut = [&](const Tensor& x) { return piece(x, documents, row, rows, first, length); };
    auto [out, log_sum_exp] =
        at::_scaled_dot_product_flash_attention_for_cpu(cut(q), cut(k), cut(v), 0.0, visible.causal);
    if (documents == nullptr) {
      attended = {heads_first(out).contiguous(), log_sum_exp, {}};
    } else {
      cut(attended.out_BSHE).copy_(out);
      attended.log_sum_exp_BHS.narrow(0, row, rows).narrow(2, first, length).copy_(log_sum_exp);
    }
  });
  return attended;
}

Tensors cpu_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Attended& attended, const Visible& visible) {
  const DocumentsPtr& documents = visible.documents;
  Tensors grads = {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  for_each_piece(q, documents, [&](int64_t row, int64_t rows, int64_t first, int64_t length) {
    const auto cut = [&](const Tensor& x) { return piece(x, documents, row, rows, first, length); };
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        cut(grad), cut(q), cut(k), cut(v), cut(attended.out_BSHE),
        attended.log_sum_exp_BHS.narrow(0, row, rows).narrow(2, first, length), 0.0, visible.causal);
    cut(grads[0]).copy_(dq);
    cut(grads[1]).copy_(dk);
    cut(grads[2]).copy_(dv);
  });
  return grads;
}

// --- CUDA: cuDNN ---

Attended cudnn_attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  auto result = at::_scaled_dot_product_cudnn_attention(heads_first(q), heads_first(k), heads_first(v), {},
                                                        /*compute_log_sumexp=*/true, 0.0, causal);
  return {heads_first(std::get<0>(result)).contiguous(),
          std::get<1>(result).squeeze(3),
          {std::get<6>(result), std::get<7>(result), std::get<2>(result), std::get<3>(result)}};
}

Tensors cudnn_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Attended& attended, bool causal) {
  const Tensors& state = attended.random_state;
  auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
      heads_first(grad), heads_first(q), heads_first(k), heads_first(v), heads_first(attended.out_BSHE),
      attended.log_sum_exp_BHS.contiguous().unsqueeze(3), state[0], state[1], Tensor(), state[2], state[3], q.size(1),
      k.size(1), 0.0, causal);
  return {heads_first(dq), heads_first(dk), heads_first(dv)};
}

// --- CUDA: Flash. Without documents a dense call; with them all documents of the batch in one call, whose tensors are
// --- packed, [B*S, H, E] and the log-sum-exp [H, B*S].

Attended flash_attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible) {
  const auto attended = [&](const Tensor& out, const Tensor& log_sum_exp, const auto& result) -> Attended {
    return {out.contiguous(), log_sum_exp, {std::get<2>(result), std::get<3>(result)}};
  };
  if (visible.documents == nullptr) {
    const auto result = at::_flash_attention_forward(q, k, v, {}, {}, q.size(1), k.size(1), 0.0, visible.causal, false);
    return attended(std::get<0>(result), std::get<1>(result), result);
  }
  const Tensor& cut = visible.documents->boundaries_on_device;
  const int64_t longest = visible.documents->longest;
  const auto result = at::_flash_attention_forward(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), cut, cut, longest,
                                                   longest, 0.0, /*is_causal=*/true, false);
  const Shape rows = {q.size(0), q.size(1)};
  return attended(std::get<0>(result).unflatten(0, rows), std::get<1>(result).unflatten(1, rows).transpose(0, 1),
                  result);
}

Tensors flash_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Attended& attended, const Visible& visible) {
  const Tensor& out = attended.out_BSHE;
  const Tensors& state = attended.random_state;
  if (visible.documents == nullptr) {
    auto [dq, dk, dv] = at::_flash_attention_backward(grad.contiguous(), q, k, v, out.contiguous(),
                                                      attended.log_sum_exp_BHS.contiguous(), Tensor(), Tensor(),
                                                      q.size(1), k.size(1), 0.0, visible.causal, state[0], state[1]);
    return {dq, dk, dv};
  }
  const auto packed = [](const Tensor& x) { return x.flatten(0, 1); };
  const Tensor& cut = visible.documents->boundaries_on_device;
  const int64_t longest = visible.documents->longest;
  const Tensor log_sum_exp = attended.log_sum_exp_BHS.transpose(0, 1).flatten(1).contiguous();
  auto [dq, dk, dv] =
      at::_flash_attention_backward(packed(grad.contiguous()), packed(q), packed(k), packed(v), packed(out),
                                    log_sum_exp, cut, cut, longest, longest, 0.0, true, state[0], state[1]);
  return {dq.view_as(q), dk.view_as(k), dv.view_as(v)};
}

// --- By definition ---

// [B, S, H, E] -> [B, K, H/K * S, E]: queries that share a key/value head stand one after the other.
Tensor grouped(const Tensor& x_BSHE, int64_t kv_heads) {
  return x_BSHE.to(precise(x_BSHE.scalar_type())).unflatten(2, {kv_heads, -1}).permute({0, 2, 3, 1, 4}).flatten(2, 3);
}

Tensor ungrouped(const Tensor& x, const Tensor& like_BSHE) {
  const int64_t queries = like_BSHE.size(1);
  return x.unflatten(2, {-1, queries}).permute({0, 3, 1, 2, 4}).flatten(2, 3).to(like_BSHE.scalar_type()).contiguous();
}

Tensor precise_heads_first(const Tensor& x_BTKE) { return heads_first(x_BTKE).to(precise(x_BTKE.scalar_type())); }

double softmax_scale(const Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(3))); }

// [B, K, H/K * S, T]
Tensor masked_scores(const Tensor& q, const Tensor& k, const Visible& visible) {
  const Tensor mask = visible_keys(q.size(0), q.size(1), k.size(1), visible, q.device()).logical_not();
  const Tensor scores =
      at::matmul(grouped(q, k.size(2)), precise_heads_first(k).transpose(2, 3)).mul_(softmax_scale(q));
  scores.unflatten(2, {-1, q.size(1)}).masked_fill_(mask.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return scores;
}

AttentionLibrary library_for(const Tensor& q, const Visible& visible) {
  return attention_library(q, visible.documents != nullptr, visible.sizes_vary);
}

}  // namespace

Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible) {
  switch (library_for(q, visible)) {
    case AttentionLibrary::kCpu:
      return cpu_attend(q, k, v, visible);
    case AttentionLibrary::kCudnn:
      return cudnn_attend(q, k, v, visible.causal);
    case AttentionLibrary::kFlash:
      return flash_attend(q, k, v, visible);
    case AttentionLibrary::kDefinition:
      break;
  }
  return attend_by_definition(q, k, v, visible);
}

Tensors attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Attended& attended,
                        const Visible& visible) {
  switch (library_for(q, visible)) {
    case AttentionLibrary::kCpu:
      return cpu_attend_backward(grad, q, k, v, attended, visible);
    case AttentionLibrary::kCudnn:
      return cudnn_attend_backward(grad, q, k, v, attended, visible.causal);
    case AttentionLibrary::kFlash:
      return flash_attend_backward(grad, q, k, v, attended, visible);
    case AttentionLibrary::kDefinition:
      break;
  }
  return attend_by_definition_backward(grad, q, k, v, attended, visible);
}

Attended attend_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible) {
  const Tensor scores = masked_scores(q, k, visible);
  const Tensor log_sum_exp = at::logsumexp(scores, -1);
  const Tensor weights = (scores - log_sum_exp.unsqueeze(3)).exp_();
  return {ungrouped(at::matmul(weights, precise_heads_first(v)), q),
          log_sum_exp.view({q.size(0), q.size(2), q.size(1)}),
          {}};
}

Tensors attend_by_definition_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Attended& attended, const Visible& visible) {
  const int64_t kv_heads = k.size(2);
  const Tensor log_sum_exp = attended.log_sum_exp_BHS.reshape({q.size(0), kv_heads, -1, 1});
  const Tensor weights = (masked_scores(q, k, visible) - log_sum_exp).exp_();
  const Tensor grad_out = grouped(grad, kv_heads);
  const Tensor row_sums = (grad_out * grouped(attended.out_BSHE, kv_heads)).sum(-1, /*keepdim=*/true);
  const Tensor grad_scores =
      (at::matmul(grad_out, precise_heads_first(v).transpose(2, 3)) - row_sums).mul_(weights).mul_(softmax_scale(q));
  const auto keys = [&](const Tensor& x_BKTE) { return heads_first(x_BKTE).to(k.scalar_type()).contiguous(); };
  return {ungrouped(at::matmul(grad_scores, precise_heads_first(k)), q),
          keys(at::matmul(grad_scores.transpose(2, 3), grouped(q, kv_heads))),
          keys(at::matmul(weights.transpose(2, 3), grad_out))};
}

Tensor visible_keys(int64_t batch, int64_t queries, int64_t keys, const Visible& visible, Device device) {
  const auto integers = at::TensorOptions(at::kLong).device(device);
  if (!visible.causal) return at::ones({1, 1, queries, keys}, integers.dtype(at::kBool));
  const Tensor positions = at::arange(keys, integers);
  const Tensor earlier = positions.unsqueeze(0) <= positions.narrow(0, keys - queries, queries).unsqueeze(1);
  if (visible.documents == nullptr) return earlier.view({1, 1, queries, keys});
  const std::vector<int32_t>& boundaries = visible.documents->boundaries;
  TI_ASSERT(queries == keys && boundaries.back() == batch * keys);
  Tensor ids = at::zeros({batch * keys}, at::kLong);
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    ids.narrow(0, boundaries[i], boundaries[i + 1] - boundaries[i]).fill_(static_cast<int64_t>(i));
  }
  ids = ids.view({batch, 1, keys}).to(device);
  return earlier.logical_and(ids.unsqueeze(2) == ids.unsqueeze(3));
}

}  // namespace titanium::ops
