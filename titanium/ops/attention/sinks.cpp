#include "titanium/ops/attention/sinks.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

Tensor broadcast_sinks(const Parameter& sinks, const Tensor& log_sum_exp_BHS) {
  return sinks.in(log_sum_exp_BHS.scalar_type()).view({1, -1, 1});
}

// A head is a power of two of words, at most as many as a warp has threads.
bool takes_kernel(const Tensor& out_BSHV) {
  constexpr int64_t kWord = 16, kMostWords = 32;
  const int64_t bytes = out_BSHV.size(3) * out_BSHV.element_size(), words = bytes / kWord;
  return uses_kernels(out_BSHV) && out_BSHV.is_contiguous() && out_BSHV.numel() > 0 && bytes % kWord == 0 &&
         words <= kMostWords && (words & (words - 1)) == 0;
}

kernels::HeadRows rows_of(const Tensor& out_BSHV) {
  return {out_BSHV.size(0), out_BSHV.size(1), out_BSHV.size(2), out_BSHV.size(3)};
}

}  // namespace

Attended add_sinks(const Attended& attended, const Parameter& sinks) {
  if (takes_kernel(attended.out_BSHV)) {
    const Tensor sums_BHS = attended.log_sum_exp_BHS.contiguous(), sinks_H = sinks.in(at::kFloat).contiguous();
    const Tensor with_sinks_BHS = at::empty_like(sums_BHS);
    launch(kernels::AddSinksArgs{element_type(attended.out_BSHV), rows_of(attended.out_BSHV),
                                 attended.out_BSHV.mutable_data_ptr(), sums_BHS.const_data_ptr<float>(),
                                 sinks_H.const_data_ptr<float>(), with_sinks_BHS.mutable_data_ptr<float>()});
    return {attended.out_BSHV, with_sinks_BHS, attended.random_state};
  }
  const Tensor& sums_BHS = attended.log_sum_exp_BHS;
  const Tensor sinks_1H1 = broadcast_sinks(sinks, sums_BHS);
  const Tensor share_BSH1 = at::sigmoid(sums_BHS - sinks_1H1).transpose(1, 2).unsqueeze(3);
  attended.out_BSHV.mul_(share_BSH1);
  return {attended.out_BSHV, at::logaddexp(sums_BHS, sinks_1H1), attended.random_state};
}

void accumulate_sink_grad(const Tensor& grad, const Attended& attended, Parameter& sinks) {
  if (takes_kernel(attended.out_BSHV)) {
    const Tensor sums_BHS = attended.log_sum_exp_BHS.contiguous(), sinks_H = sinks.in(at::kFloat).contiguous();
    const Tensor grad_BSHV = grad.contiguous(), products_BHS = at::empty_like(sums_BHS);
    launch(kernels::SinkProductsArgs{element_type(grad_BSHV), rows_of(attended.out_BSHV), grad_BSHV.const_data_ptr(),
                                     attended.out_BSHV.const_data_ptr(), sums_BHS.const_data_ptr<float>(),
                                     sinks_H.const_data_ptr<float>(), products_BHS.mutable_data_ptr<float>()});
    return sinks.accumulate(products_BHS.sum(at::IntArrayRef{0, 2}));
  }
  const Tensor& sums_BHS = attended.log_sum_exp_BHS;
  const Tensor weights_BHS = (broadcast_sinks(sinks, sums_BHS) - sums_BHS).exp_();
  const Tensor products_BSH = grad.to(sums_BHS.scalar_type()).mul(attended.out_BSHV).sum(-1);
  sinks.accumulate(weights_BHS.mul_(products_BSH.transpose(1, 2)).sum(at::IntArrayRef{0, 2}).neg_());
}

}  // namespace titanium::ops
