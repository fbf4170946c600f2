#include "titanium/ops/attention.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

// [B, S, K, E] -> [B, S, H, E]: each key/value head serves H/K neighbouring query heads.
Tensor repeat_heads(const Tensor& x_BSKE, int64_t heads) {
  const int64_t repeats = heads / x_BSKE.size(2);
  if (repeats == 1) return x_BSKE;
  return x_BSKE.unsqueeze(3).expand({-1, -1, -1, repeats, -1}).flatten(2, 3);
}

// The backward of repeat_heads.
Tensor sum_heads(const Tensor& x_BSHE, int64_t kv_heads) {
  if (x_BSHE.size(2) == kv_heads) return x_BSHE;
  return x_BSHE.unflatten(2, {kv_heads, -1}).sum(3);
}

Tensor heads_first(const Tensor& x_BSHE) { return x_BSHE.transpose(1, 2); }

// --- CPU: ATen's flash attention, one causal call per document (or one for the whole batch)
// ---------------------------

// Calls f(rows of the batch, first token, length) for every piece that one call can handle.
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

Tensor piece(const Tensor& x_BSHE, int64_t row, int64_t rows, int64_t first, int64_t length) {
  return x_BSHE.narrow(0, row, rows).narrow(1, first, length);
}

struct CpuForward {
  Tensor out_BSHE;
  Tensors log_sum_exp;  // of each piece
};

CpuForward cpu_forward(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentsPtr& documents) {
  CpuForward forward;
  forward.out_BSHE = documents == nullptr ? Tensor() : at::empty_like(q);
  const Tensor keys = repeat_heads(k, q.size(2));
  const Tensor values = repeat_heads(v, q.size(2));
  for_each_piece(q, documents, [&](int64_t row, int64_t rows, int64_t first, int64_t length) {
    const auto cut = [&](const Tensor& x) { return heads_first(piece(x, row, rows, first, length)); };
    auto [out, log_sum_exp] =
        at::_scaled_dot_product_flash_attention_for_cpu(cut(q), cut(keys), cut(values), 0.0, /*is_causal=*/true);
    forward.log_sum_exp.push_back(log_sum_exp);
    if (documents == nullptr) {
      forward.out_BSHE = heads_first(out).contiguous();
    } else {
      cut(forward.out_BSHE).copy_(out);
    }
  });
  return forward;
}

Tensors cpu_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const CpuForward& forward,
                     const DocumentsPtr& documents) {
  const Tensor keys = repeat_heads(k, q.size(2));
  const Tensor values = repeat_heads(v, q.size(2));
  Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(q), grad_v = at::empty_like(q);
  size_t index = 0;
  for_each_piece(q, documents, [&](int64_t row, int64_t rows, int64_t first, int64_t length) {
    const auto cut = [&](const Tensor& x) { return heads_first(piece(x, row, rows, first, length)); };
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        cut(grad), cut(q), cut(keys), cut(values), cut(forward.out_BSHE), forward.log_sum_exp[index++], 0.0,
        /*is_causal=*/true);
    cut(grad_q).copy_(dq);
    cut(grad_k).copy_(dk);
    cut(grad_v).copy_(dv);
  });
  return {grad_q, sum_heads(grad_k, k.size(2)), sum_heads(grad_v, k.size(2))};
}

Tensor cpu_attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentsPtr& documents) {
  CpuForward forward;
  {
    const c10::AutoGradMode no_grad(false);
    forward = cpu_forward(q, k, v, documents);
  }
  const Tensor out = forward.out_BSHE;
  forward.out_BSHE = out.detach();
  record({q, k, v}, {out},
         [q = q.detach(), k = k.detach(), v = v.detach(), forward, documents](const Tensors& grads) -> Tensors {
           return cpu_backward(grads[0], q, k, v, forward, documents);
         });
  return out;
}

// --- CUDA ---------------------------------------------------------------------------------------------------------

struct CudnnForward {
  Tensor out_BHSE, log_sum_exp, cum_q, cum_k, seed, offset;
  int64_t max_q = 0, max_k = 0;
};

Tensor cuda_causal_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  CudnnForward saved;
  Tensor out;
  {
    const c10::AutoGradMode no_grad(false);
    auto result = at::_scaled_dot_product_cudnn_attention(heads_first(q), heads_first(k), heads_first(v), {},
                                                          /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true);
    saved = {std::get<0>(result),
             std::get<1>(result),
             std::get<2>(result),
             std::get<3>(result),
             std::get<6>(result),
             std::get<7>(result),
             std::get<4>(result).expect_int(),
             std::get<5>(result).expect_int()};
    out = heads_first(saved.out_BHSE).contiguous();
    saved.out_BHSE = heads_first(out.detach());
  }
  record({q, k, v}, {out}, [q = q.detach(), k = k.detach(), v = v.detach(), saved](const Tensors& grads) -> Tensors {
    auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        heads_first(grads[0]), heads_first(q), heads_first(k), heads_first(v), saved.out_BHSE, saved.log_sum_exp,
        saved.seed, saved.offset, Tensor(), saved.cum_q, saved.cum_k, saved.max_q, saved.max_k, 0.0, true);
    return {heads_first(dq), heads_first(dk), heads_first(dv)};
  });
  return out;
}

// Flash attention over all documents of the batch in one call.
Tensor cuda_document_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Documents& documents) {
  const auto packed = [](const Tensor& x) { return x.flatten(0, 1); };
  const Tensor& cut = documents.boundaries_on_device;
  const int64_t longest = documents.longest;
  Tensor out, log_sum_exp, rng_state, unused;
  {
    const c10::AutoGradMode no_grad(false);
    std::tie(out, log_sum_exp, rng_state, unused, std::ignore) = at::_flash_attention_forward(
        packed(q), packed(k), packed(v), cut, cut, longest, longest, 0.0, /*is_causal=*/true, false);
    out = out.unflatten(0, {q.size(0), q.size(1)}).contiguous();
  }
  const Tensor kept_out = out.detach();
  record({q, k, v}, {out}, [=, q = q.detach(), k = k.detach(), v = v.detach()](const Tensors& grads) -> Tensors {
    auto [dq, dk, dv] =
        at::_flash_attention_backward(packed(grads[0].contiguous()), packed(q), packed(k), packed(v), packed(kept_out),
                                      log_sum_exp, cut, cut, longest, longest, 0.0, true, rng_state, unused);
    return {dq.view_as(q), dk.view_as(k), dv.view_as(v)};
  });
  return out;
}

}  // namespace

DocumentsPtr find_documents(std::span<const int64_t> tokens, int64_t seq_len, int64_t eos_id, Device device) {
  TI_ASSERT(seq_len > 0 && tokens.size() % seq_len == 0, "{} tokens in rows of {}", tokens.size(), seq_len);
  Documents documents;
  documents.boundaries.push_back(0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool row_ends = static_cast<int64_t>(i + 1) % seq_len == 0;
    if (tokens[i] != eos_id && !row_ends) continue;
    documents.longest = std::max<int64_t>(documents.longest, i + 1 - documents.boundaries.back());
    documents.boundaries.push_back(static_cast<int32_t>(i + 1));
  }
  if (!device.is_cpu()) {
    documents.boundaries_on_device = at::tensor(documents.boundaries, at::kInt).to(device, /*non_blocking=*/true);
  }
  return std::make_shared<const Documents>(std::move(documents));
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentsPtr& documents) {
  if (q.device().is_cpu()) return cpu_attention(q, k, v, documents);
  if (q.scalar_type() != at::kBFloat16 && q.scalar_type() != at::kHalf)
    return attention_by_definition(q, k, v, documents);
  return documents == nullptr ? cuda_causal_attention(q, k, v) : cuda_document_attention(q, k, v, *documents);
}

Tensor attention_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentsPtr& documents) {
  const int64_t queries = q.size(1), keys = k.size(1), heads = q.size(2);
  const Dtype precise = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto prepared = [&](const Tensor& x) { return heads_first(repeat_heads(x, heads)).to(precise); };
  const Tensor positions = at::arange(keys, q.options().dtype(at::kLong));
  const Tensor query_positions = positions.narrow(0, keys - queries, queries).unsqueeze(1);
  Tensor visible = positions.unsqueeze(0) <= query_positions;
  if (documents != nullptr) {
    Tensor ids = at::zeros({q.size(0) * keys}, at::kLong);
    for (size_t i = 0; i + 1 < documents->boundaries.size(); ++i) {
      const int64_t first = documents->boundaries[i];
      ids.narrow(0, first, documents->boundaries[i + 1] - first).fill_(static_cast<int64_t>(i));
    }
    ids = ids.view({q.size(0), 1, keys}).to(q.device());
    visible = visible.logical_and(ids.unsqueeze(2) == ids.unsqueeze(3));
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor scores = (at::matmul(prepared(q), prepared(k).transpose(2, 3)) * scale)
                            .masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity());
  return heads_first(at::matmul(at::softmax(scores, -1), prepared(v))).contiguous().to(q.scalar_type());
}

}  // namespace titanium::ops
