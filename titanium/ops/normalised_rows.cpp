#include "titanium/ops/normalised_rows.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/ops/rms_norm.h"

namespace titanium::ops {

NormalisedRows::Way NormalisedRows::way_of(const Args& args) {
  if (args.needs_all) return Way::kBefore;
  const auto in_float8 = [&](const Parameter* weight) { return multiplies_float8(args.x_tD, *weight); };
  if (args.amax.defined() && std::ranges::all_of(args.weights, in_float8)) return Way::kInFloat8;
  return args.exchange.ranks() == 1 ? Way::kByBackward : Way::kBefore;
}

NormalisedRows::NormalisedRows(Args args) : args_(std::move(args)), way_(way_of(args_)) {
  if (way_ == Way::kBefore) arriving_ = args_.exchange.gather(rms_norm_apply(args_.x_tD, args_.rstd_t1, args_.norm));
}

const LinearInput& NormalisedRows::all() {
  TI_ASSERT(way_ == Way::kBefore, "the rows are not there before the backward of the norm");
  if (all_.is_empty()) all_ = LinearInput(arriving_(), args_.amax);
  return all_;
}

Tensor NormalisedRows::backward(const Pending& grad_tD, const Tensor& around_tD,
                                const std::function<void(const LinearInput& rows_TD)>& add_weight_grads) {
  if (way_ == Way::kByBackward) {
    const RmsNormGradAndOutput out =
        rms_norm_backward_with_output(grad_tD(), args_.x_tD, args_.rstd_t1, args_.norm, around_tD);
    add_weight_grads(LinearInput(out.y_TD, args_.amax));
    return out.grad_x_TD;
  }
  add_weight_grads(way_ == Way::kInFloat8 ? normalised_in_float8(args_.x_tD, args_.rstd_t1, args_.norm, args_.amax)
                                          : all());
  return rms_norm_backward(grad_tD(), args_.x_tD, args_.rstd_t1, args_.norm, around_tD);
}

}  // namespace titanium::ops
