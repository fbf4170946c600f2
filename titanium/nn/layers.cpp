#include "titanium/nn/layers.h"

#include "titanium/ops/rms_norm.h"

namespace titanium::nn {

Tensor RmsNorm::forward(const Tensor& x_TD) { return ops::rms_norm(x_TD, weight, eps); }

}  // namespace titanium::nn
