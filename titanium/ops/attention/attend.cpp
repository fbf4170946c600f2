#include "titanium/ops/attention/attend.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "titanium/base/error.h"
#include "titanium/ops/attention/attend_by_definition.h"
#include "titanium/ops/attention/attention_library.h"

namespace titanium::ops {
namespace {

using Scale = std::optional<double>;

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

// [B, S, H, E] -> [b, s, H, E]; without documents everything, keys of another length than the queries included.
Tensor piece(const Tensor& x_BSHE, const DocumentsPtr& documents, int64_t row, int64_t rows, int64_t first,
             int64_t length) {
  if (documents == nullptr) return x_BSHE;
  return x_BSHE.narrow(0, row, rows).narrow(1, first, length);
}

// ATen's attention for CPUs has no windows. Short ones go by definition, in which bands of scores are as small.
bool window_cuts(const Visible& visible, int64_t length) { return visible.window > 0 && visible.window < length; }

Attended cpu_attend_piece(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible, Scale scale) {
  if (window_cuts(visible, q.size(1))) return attend_in_bands(q, k, v, visible.window, scale);
  auto [out, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_first(q), heads_first(k), heads_first(v), 0.0, visible.causal, {}, scale);
  return {heads_first(out), log_sum_exp, {}};
}

Tensors cpu_attend_piece_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Attended& attended, const Visible& visible, Scale scale) {
  if (window_cuts(visible, q.size(1))) {
    return attend_in_bands_backward(grad, q, k, v, attended, visible.window, scale);
  }
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      heads_first(grad), heads_first(q), heads_first(k), heads_first(v), heads_first(attended.out_BSHV),
      attended.log_sum_exp_BHS, 0.0, visible.causal, {}, scale);
  return {heads_first(dq), heads_first(dk), heads_first(dv)};
}

Attended cpu_attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible, Scale scale) {
  if (!visible.causal && visible.window > 0) return attend_by_definition(q, k, v, visible, scale);
  Attended attended;
  const DocumentsPtr& documents = visible.documents;
  if (documents != nullptr) {
    attended.out_BSHV = at::empty_like(q, at::MemoryFormat::Contiguous);
    attended.log_sum_exp_BHS =
        at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(precise(q.scalar_type())));
  }
  for_each_piece(q, documents, [&](int64_t row, int64_t rows, int64_t first, int64_t length) {
    const auto cut = [&](const Tensor& x) { return piece(x, documents, row, rows, first, length); };
    const Attended found = cpu_attend_piece(cut(q), cut(k), cut(v), visible, scale);
    if (documents == nullptr) {
      attended = {found.out_BSHV.contiguous(), found.log_sum_exp_BHS, {}};
    } else {
      cut(attended.out_BSHV).copy_(found.out_BSHV);
      attended.log_sum_exp_BHS.narrow(0, row, rows).narrow(2, first, length).copy_(found.log_sum_exp_BHS);
    }
  });
  return attended;
}

Tensors cpu_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Attended& attended, const Visible& visible, Scale scale) {
  if (!visible.causal && visible.window > 0) {
    return attend_by_definition_backward(grad, q, k, v, attended, visible, scale);
  }
  const DocumentsPtr& documents = visible.documents;
  const Tensors grads = {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  for_each_piece(q, documents, [&](int64_t row, int64_t rows, int64_t first, int64_t length) {
    const auto cut = [&](const Tensor& x) { return piece(x, documents, row, rows, first, length); };
    const Attended part = {
        cut(attended.out_BSHV), attended.log_sum_exp_BHS.narrow(0, row, rows).narrow(2, first, length), {}};
    const Tensors found = cpu_attend_piece_backward(cut(grad), cut(q), cut(k), cut(v), part, visible, scale);
    for (size_t i = 0; i < grads.size(); ++i) cut(grads[i]).copy_(found[i]);
  });
  return grads;
}

// --- CUDA: cuDNN ---

Attended cudnn_attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, Scale scale) {
  auto result = at::_scaled_dot_product_cudnn_attention(heads_first(q), heads_first(k), heads_first(v), {},
                                                        /*compute_log_sumexp=*/true, 0.0, causal,
                                                        /*return_debug_mask=*/false, scale);
  return {heads_first(std::get<0>(result)).contiguous(),
          std::get<1>(result).squeeze(3),
          {std::get<6>(result), std::get<7>(result), std::get<2>(result), std::get<3>(result)}};
}

Tensors cudnn_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Attended& attended, bool causal, Scale scale) {
  const Tensors& state = attended.random_state;
  auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
      heads_first(grad), heads_first(q), heads_first(k), heads_first(v), heads_first(attended.out_BSHV),
      attended.log_sum_exp_BHS.contiguous().unsqueeze(3), state[0], state[1], Tensor(), state[2], state[3], q.size(1),
      k.size(1), 0.0, causal, scale);
  return {heads_first(dq), heads_first(dk), heads_first(dv)};
}

// --- CUDA: Flash. Without documents a dense call; with them all documents of the batch in one call, whose tensors are
// --- packed, [B*S, H, E] and the log-sum-exp [H, B*S].

// How many keys before the one that stands opposite a query are seen. Flash lays the last query opposite the last key.
std::optional<int64_t> keys_to_the_left(const Tensor& q, const Tensor& k, const Visible& visible) {
  if (visible.window == 0) return std::nullopt;
  const int64_t opposite = k.size(1) - q.size(1);
  return visible.window - 1 - visible.first_query.value_or(opposite) + opposite;
}

Attended flash_attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible, Scale scale) {
  const auto attended = [&](const Tensor& out, const Tensor& log_sum_exp, const auto& result) -> Attended {
    return {out.contiguous(), log_sum_exp, {std::get<2>(result), std::get<3>(result)}};
  };
  const std::optional<int64_t> left = keys_to_the_left(q, k, visible);
  if (visible.documents == nullptr) {
    const auto result =
        at::_flash_attention_forward(q, k, v, {}, {}, q.size(1), k.size(1), 0.0, visible.causal, false, scale, left);
    return attended(std::get<0>(result), std::get<1>(result), result);
  }
  const Tensor& cut = visible.documents->boundaries_on_device;
  const int64_t longest = visible.documents->longest;
  const auto result = at::_flash_attention_forward(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), cut, cut, longest,
                                                   longest, 0.0, /*is_causal=*/true, false, scale, left);
  const Shape rows = {q.size(0), q.size(1)};
  return attended(std::get<0>(result).unflatten(0, rows), std::get<1>(result).unflatten(1, rows).transpose(0, 1),
                  result);
}

Tensors flash_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Attended& attended, const Visible& visible, Scale scale) {
  const Tensor& out = attended.out_BSHV;
  const Tensors& state = attended.random_state;
  const std::optional<int64_t> left = keys_to_the_left(q, k, visible);
  if (visible.documents == nullptr) {
    auto [dq, dk, dv] = at::_flash_attention_backward(
        grad.contiguous(), q, k, v, out.contiguous(), attended.log_sum_exp_BHS.contiguous(), Tensor(), Tensor(),
        q.size(1), k.size(1), 0.0, visible.causal, state[0], state[1], scale, left);
    return {dq, dk, dv};
  }
  const auto packed = [](const Tensor& x) { return x.flatten(0, 1); };
  const Tensor& cut = visible.documents->boundaries_on_device;
  const int64_t longest = visible.documents->longest;
  const Tensor log_sum_exp = attended.log_sum_exp_BHS.transpose(0, 1).flatten(1).contiguous();
  auto [dq, dk, dv] = at::_flash_attention_backward(packed(grad.contiguous()), packed(q), packed(k), packed(v),
                                                    packed(out), log_sum_exp, cut, cut, longest, longest, 0.0, true,
                                                    state[0], state[1], scale, left);
  return {dq.view_as(q), dk.view_as(k), dv.view_as(v)};
}

// --- By definition ---

bool goes_in_bands(const Tensor& q, const Visible& visible) {
  return visible.causal && visible.documents == nullptr && window_cuts(visible, q.size(1));
}

Attended defined_attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible, Scale scale) {
  if (goes_in_bands(q, visible)) return attend_in_bands(q, k, v, visible.window, scale);
  return attend_by_definition(q, k, v, visible, scale);
}

Tensors defined_attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                const Attended& attended, const Visible& visible, Scale scale) {
  if (goes_in_bands(q, visible)) return attend_in_bands_backward(grad, q, k, v, attended, visible.window, scale);
  return attend_by_definition_backward(grad, q, k, v, attended, visible, scale);
}

// --- The choice ---

AttentionLibrary library_for(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible) {
  TI_ASSERT(visible.chunk == 0, "chunks of {} tokens, which are neither documents nor rows", visible.chunk);
  const AttentionLibrary library = attention_library(q, v, visible);
  // A number to the left that is negative means all of them to Flash. Rectangles that a window cuts are small, and
  // Flash has been seen to be wrong where they have fewer keys than queries.
  const bool is_cut = !visible.causal && visible.window > 0;
  const bool flash_cannot =
      library == AttentionLibrary::kFlash && (is_cut || keys_to_the_left(q, k, visible).value_or(0) < 0);
  return flash_cannot ? AttentionLibrary::kDefinition : library;
}

// Where a library wants one head dim for all, the smaller one is filled up with zeros, which add nothing to scores and
// give columns of zeros in the output.
bool wants_equal_dims(AttentionLibrary library) {
  return library == AttentionLibrary::kCpu || library == AttentionLibrary::kFlash;
}

Tensor widened(const Tensor& x_BSHE, int64_t dim) {
  return x_BSHE.size(3) == dim ? x_BSHE : at::constant_pad_nd(x_BSHE, {0, dim - x_BSHE.size(3)});
}

Attended attend_by(AttentionLibrary library, const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible,
                   Scale scale) {
  switch (library) {
    case AttentionLibrary::kCpu:
      return cpu_attend(q, k, v, visible, scale);
    case AttentionLibrary::kCudnn:
      return cudnn_attend(q, k, v, visible.causal, scale);
    case AttentionLibrary::kFlash:
      return flash_attend(q, k, v, visible, scale);
    case AttentionLibrary::kDefinition:
      break;
  }
  return defined_attend(q, k, v, visible, scale);
}

Tensors attend_backward_by(AttentionLibrary library, const Tensor& grad, const Tensor& q, const Tensor& k,
                           const Tensor& v, const Attended& attended, const Visible& visible, Scale scale) {
  switch (library) {
    case AttentionLibrary::kCpu:
      return cpu_attend_backward(grad, q, k, v, attended, visible, scale);
    case AttentionLibrary::kCudnn:
      return cudnn_attend_backward(grad, q, k, v, attended, visible.causal, scale);
    case AttentionLibrary::kFlash:
      return flash_attend_backward(grad, q, k, v, attended, visible, scale);
    case AttentionLibrary::kDefinition:
      break;
  }
  return defined_attend_backward(grad, q, k, v, attended, visible, scale);
}

}  // namespace

Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible, Scale scale) {
  const AttentionLibrary library = library_for(q, k, v, visible);
  const int64_t key_dim = q.size(3), value_dim = v.size(3);
  if (key_dim == value_dim || !wants_equal_dims(library)) return attend_by(library, q, k, v, visible, scale);
  const int64_t dim = std::max(key_dim, value_dim);
  Attended attended =
      attend_by(library, widened(q, dim), widened(k, dim), widened(v, dim), visible, softmax_scale(q, scale));
  attended.out_BSHV = attended.out_BSHV.narrow(3, 0, value_dim).contiguous();
  return attended;
}

Tensors attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Attended& attended,
                        const Visible& visible, Scale scale) {
  const AttentionLibrary library = library_for(q, k, v, visible);
  const int64_t key_dim = q.size(3), value_dim = v.size(3);
  if (key_dim == value_dim || !wants_equal_dims(library)) {
    return attend_backward_by(library, grad, q, k, v, attended, visible, scale);
  }
  const int64_t dim = std::max(key_dim, value_dim);
  const Attended wide = {widened(attended.out_BSHV, dim), attended.log_sum_exp_BHS, attended.random_state};
  const Tensors grads = attend_backward_by(library, widened(grad, dim), widened(q, dim), widened(k, dim),
                                           widened(v, dim), wide, visible, softmax_scale(q, scale));
  const auto narrowed = [](const Tensor& x, int64_t own_dim) { return x.narrow(3, 0, own_dim).contiguous(); };
  return {narrowed(grads[0], key_dim), narrowed(grads[1], key_dim), narrowed(grads[2], value_dim)};
}

}  // namespace titanium::ops
