#include "titanium/ops/attention/attention.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include "titanium/ops/attention/attend.h"

namespace titanium::ops {
namespace {

// [B, S, K, E] -> [B, S, H, E]: each key/value head serves H/K neighbouring query heads.
Tensor repeat_heads(const Tensor& x_BSKE, int64_t heads) {
  const int64_t repeats = heads / x_BSKE.size(2);
  if (repeats == 1) return x_BSKE;
  return x_BSKE.unsqueeze(3).expand({-1, -1, -1, repeats, -1}).flatten(2, 3);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentsPtr& documents) {
  const Visible visible = {.causal = true, .documents = documents};
  Attended attended;
  {
    const c10::AutoGradMode no_grad(false);
    attended = attend(q, k, v, visible);
  }
  const Tensor out = attended.out_BSHE;
  attended.out_BSHE = out.detach();
  record({q, k, v}, {out},
         [q = q.detach(), k = k.detach(), v = v.detach(), attended, visible](const Tensors& grads) -> Tensors {
           return attend_backward(grads[0], q, k, v, attended, visible);
         });
  return out;
}

Tensor attention_by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentsPtr& documents) {
  const Dtype precise = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto prepared = [&](const Tensor& x) { return repeat_heads(x, q.size(2)).transpose(1, 2).to(precise); };
  const Tensor visible =
      visible_keys(q.size(0), q.size(1), k.size(1), {.causal = true, .documents = documents}, q.device());
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor scores = (at::matmul(prepared(q), prepared(k).transpose(2, 3)) * scale)
                            .masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), prepared(v)).transpose(1, 2).contiguous().to(q.scalar_type());
}

}  // namespace titanium::ops
