// y = x / sqrt(mean(x^2) + eps) * weight, row by row; sums in fp32 whatever the dtype of x.
#pragma once

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

struct RmsNormOutput {
  Tensor y_TD;
  Tensor rstd_T1;  // 1 / sqrt(mean(x^2) + eps), fp32, for the backward
  Tensor amax;     // the largest magnitude of y, fp32, where our kernels find it on the way and it is wanted
};
RmsNormOutput rms_norm_forward(const Tensor& x_TD, const Parameter& weight, double eps, bool with_amax = false);

// y once more, from x and rstd. The same bits as in the forward.
Tensor rms_norm_apply(const Tensor& x_TD, const Tensor& rstd_T1, const Parameter& weight);

// Returns the gradient of x, with `around_TD` added if defined (the gradient of a residual connection around the norm),
// and adds that of the weight.
Tensor rms_norm_backward(const Tensor& grad_TD, const Tensor& x_TD, const Tensor& rstd_T1, Parameter& weight,
                         const Tensor& around_TD = {});

// The same, and in the same pass y once more, for the gradients of weights that come after the norm's: the bits of
// rms_norm_apply. The gradient is given up: y may lie in its memory.
struct RmsNormGradAndOutput {
  Tensor grad_x_TD;
  Tensor y_TD;
};
RmsNormGradAndOutput rms_norm_backward_with_output(const Tensor& grad_TD, const Tensor& x_TD, const Tensor& rstd_T1,
                                                   Parameter& weight, const Tensor& around_TD = {});

// Saves x and rstd.
Tensor rms_norm(const Tensor& x_TD, Parameter& weight, double eps);

}  // namespace titanium::ops
