#include "titanium/ops/head_loss.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "titanium/ops/linear.h"

namespace titanium::ops {
namespace {

// Logits of one chunk: about 32 MiB in fp32 keeps the temporary small against everything else and the GEMM efficient.
int64_t chunk_tokens(int64_t vocabulary) { return std::clamp<int64_t>((int64_t{8} << 20) / vocabulary, 64, 4096); }

// softmax - onehot, times scale, and zero for ignored tokens; overwrites the log-probabilities.
Tensor logits_grad(Tensor& log_probabilities_TV, const Tensor& labels_T1, const Tensor& valid_T1, double scale) {
  Tensor grad_TV = log_probabilities_TV.exp_();
  grad_TV.scatter_(1, labels_T1, grad_TV.gather(1, labels_T1).sub_(1));
  return grad_TV.mul_(valid_T1.to(grad_TV.scalar_type()).mul_(scale));
}

}  // namespace

Tensor head_loss(const Tensor& x_TD, Parameter& weight_VD, const Tensor& labels_T, double scale) {
  const bool with_grad = needs_grad({x_TD});
  const c10::AutoGradMode no_grad(false);
  Tensor loss = at::zeros({}, x_TD.options().dtype(at::kDouble));
  Tensor grad_x_TD = with_grad ? at::empty_like(x_TD) : Tensor();
  const int64_t tokens = x_TD.size(0), chunk = chunk_tokens(weight_VD.value.size(0));
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t count = std::min(chunk, tokens - first);
    const Tensor x = x_TD.detach().narrow(0, first, count);
    const Tensor labels = labels_T.narrow(0, first, count).unsqueeze(1);
    const Tensor valid = labels != kIgnoreIndex;
    const Tensor targets = labels.clamp_min(0);
    Tensor log_probabilities = at::_log_softmax(linear_forward(x, weight_VD).to(at::kFloat), 1, false);
    loss.sub_(log_probabilities.gather(1, targets).masked_fill_(valid.logical_not(), 0).sum(at::kDouble), scale);
    if (!with_grad) continue;
    const Tensor grad = logits_grad(log_probabilities, targets, valid, scale).to(x.scalar_type());
    accumulate_weight_grad(grad, x, weight_VD);
    grad_x_TD.narrow(0, first, count).copy_(linear_input_grad(grad, weight_VD));
  }
  if (with_grad) {
    const c10::AutoGradMode with(true);
    record({x_TD}, {loss}, [grad_x_TD](const Tensors&) -> Tensors { return {grad_x_TD}; });
  }
  return loss;
}

}  // namespace titanium::ops
