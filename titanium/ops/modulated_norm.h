// The layer norm of a diffusion transformer, whose scale and shift are vectors of the sample, outside autograd. Shapes:
// B samples, S tokens, D model dim.
#pragma once

#include "titanium/ops/record.h"

namespace titanium::ops {

// (1 + scale) * layer_norm(x) + shift: the norm has no weights of its own, and its eps is 1e-6.
struct ShiftAndScale {
  Tensor shift_BD, scale_BD;
};

// What the backward needs; mean and rstd are those of the rows, in fp32 where our kernels run.
struct ModulatedNorm {
  Tensor x_BSD, mean, rstd;
  ShiftAndScale modulation;
};
Tensor modulated_norm(const Tensor& x_BSD, const ShiftAndScale& modulation, ModulatedNorm& saved);
// The result once more, with the same bits.
Tensor modulated_norm_again(const ModulatedNorm& saved);

struct ModulatedNormGrads {
  Tensor x_BSD, shift_BD, scale_BD;
};
// `around` is added to the gradient of x; undefined: nothing goes around the norm.
ModulatedNormGrads modulated_norm_backward(const Tensor& grad_BSD, const ModulatedNorm& saved,
                                           const Tensor& around_BSD = {});

}  // namespace titanium::ops
