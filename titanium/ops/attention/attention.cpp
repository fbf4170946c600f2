#include "titanium/ops/attention/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/attention/attend_by_definition.h"
#include "titanium/ops/attention/sinks.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

// [B, S, K, E] -> [B, S, H, E]: each key/value head serves H/K neighbouring query heads.
Tensor repeat_heads(const Tensor& x_BSKE, int64_t heads) {
  const int64_t repeats = heads / x_BSKE.size(2);
  if (repeats == 1) return x_BSKE;
  return x_BSKE.unsqueeze(3).expand({-1, -1, -1, repeats, -1}).flatten(2, 3);
}

// Note [Chunks are documents]
// Queries that see their own chunk alone are those of a document that starts where the chunk does. So chunks become
// documents, or cut the documents there are; and where they tile whole sequences, each becomes a row of the batch, for
// which every library does.
struct Rows {
  int64_t per_sequence = 1;
  Visible visible;  // without chunks

  Tensor cut(const Tensor& x_BSHE) const {
    return per_sequence == 1 ? x_BSHE : x_BSHE.unflatten(1, {per_sequence, -1}).flatten(0, 1);
  }
  Tensor join(const Tensor& x) const {
    return per_sequence == 1 ? x : x.unflatten(0, {-1, per_sequence}).flatten(1, 2);
  }
};

Rows rows_of_chunks(const Tensor& q, const Visible& visible) {
  const int64_t tokens = q.size(1), chunk = visible.chunk;
  Rows rows = {1, visible};
  rows.visible.chunk = 0;
  if (visible.window >= tokens) rows.visible.window = 0;
  if (chunk == 0 || chunk >= tokens) return rows;
  if (visible.documents == nullptr && tokens % chunk == 0) {
    rows.per_sequence = tokens / chunk;
  } else {
    rows.visible.documents = cut_documents(visible.documents, chunk, q.size(0), tokens, q.device());
  }
  return rows;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible,
                 const SoftmaxArgs& softmax) {
  const TraceScope scope("attention");
  Rows rows;
  Attended attended;
  Tensor out;
  {
    const c10::AutoGradMode no_grad(false);
    rows = rows_of_chunks(q, visible);
    attended = attend(rows.cut(q), rows.cut(k), rows.cut(v), rows.visible, softmax.scale);
    if (softmax.sinks != nullptr) attended = add_sinks(attended, *softmax.sinks);
    out = rows.join(attended.out_BSHV);
  }
  attended.out_BSHV = attended.out_BSHV.detach();
  record({q, k, v}, {out},
         [q = q.detach(), k = k.detach(), v = v.detach(), attended, rows, softmax](const Tensors& grads) -> Tensors {
           const Tensor grad = rows.cut(grads[0]);
           if (softmax.sinks != nullptr) accumulate_sink_grad(grad, attended, *softmax.sinks);
           Tensors found =
               attend_backward(grad, rows.cut(q), rows.cut(k), rows.cut(v), attended, rows.visible, softmax.scale);
           for (Tensor& x : found) x = rows.join(x);
           return found;
         });
  return out;
}

Tensor attention_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible,
                               std::optional<double> scale, const Tensor& sinks_H) {
  const Dtype precise = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto prepared = [&](const Tensor& x) { return repeat_heads(x, q.size(2)).transpose(1, 2).to(precise); };
  const Tensor hidden = visible_keys(q.size(0), q.size(1), k.size(1), visible, q.device()).logical_not();
  Tensor scores = (at::matmul(prepared(q), prepared(k).transpose(2, 3)) * softmax_scale(q, scale))
                      .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (sinks_H.defined()) {
    const Tensor column = sinks_H.to(precise).view({1, -1, 1, 1}).expand({q.size(0), -1, q.size(1), 1});
    scores = at::cat({scores, column}, 3);
  }
  const Tensor weights = at::softmax(scores, -1).narrow(3, 0, k.size(1));
  return at::matmul(weights, prepared(v)).transpose(1, 2).contiguous().to(q.scalar_type());
}

}  // namespace titanium::ops
