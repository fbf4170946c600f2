#include "titanium/ops/attention/sinks.h"

#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>

namespace titanium::ops {
namespace {

Tensor broadcast_sinks(const Parameter& sinks, const Tensor& log_sum_exp_BHS) {
  return sinks.in(log_sum_exp_BHS.scalar_type()).view({1, -1, 1});
}

}  // namespace

Attended add_sinks(const Attended& attended, const Parameter& sinks) {
  const Tensor& sums_BHS = attended.log_sum_exp_BHS;
  const Tensor sinks_1H1 = broadcast_sinks(sinks, sums_BHS);
  const Tensor share_BSH1 = at::sigmoid(sums_BHS - sinks_1H1).transpose(1, 2).unsqueeze(3);
  attended.out_BSHV.mul_(share_BSH1);
  return {attended.out_BSHV, at::logaddexp(sums_BHS, sinks_1H1), attended.random_state};
}

void accumulate_sink_grad(const Tensor& grad, const Attended& attended, Parameter& sinks) {
  const Tensor& sums_BHS = attended.log_sum_exp_BHS;
  const Tensor weights_BHS = (broadcast_sinks(sinks, sums_BHS) - sums_BHS).exp_();
  const Tensor products_BSH = grad.to(sums_BHS.scalar_type()).mul(attended.out_BSHV).sum(-1);
  sinks.accumulate(weights_BHS.mul_(products_BSH.transpose(1, 2)).sum(at::IntArrayRef{0, 2}).neg_());
}

}  // namespace titanium::ops
