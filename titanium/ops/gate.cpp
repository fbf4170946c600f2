#include "titanium/ops/gate.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/launch_with_scratch.h"

namespace titanium::ops {

Tensor add_gated(const Tensor& residual_BSD, const Tensor& gate_BD, const Tensor& x_BSD) {
  if (!uses_kernels(x_BSD)) return at::addcmul(residual_BSD, x_BSD, gate_BD.unsqueeze(1));
  const Tensor residual = residual_BSD.contiguous(), x = x_BSD.contiguous(), y = at::empty_like(x);
  launch(kernels::GateForwardArgs{.type = element_type(x),
                                  .residual = residual.const_data_ptr(),
                                  .x = x.const_data_ptr(),
                                  .gate = gate_BD.const_data_ptr(),
                                  .y = y.mutable_data_ptr(),
                                  .rows = x.size(0) * x.size(1),
                                  .rows_of_sample = x.size(1),
                                  .dim = x.size(2)});
  return y;
}

GatedGrads gate_backward(const Tensor& grad_BSD, const Tensor& x_BSD, const Tensor& gate_BD) {
  if (!uses_kernels(x_BSD)) return {grad_BSD * gate_BD.unsqueeze(1), (grad_BSD * x_BSD).sum(1)};
  const Tensor grad = grad_BSD.contiguous(), x = x_BSD.contiguous();
  const GatedGrads found = {at::empty_like(x), at::empty_like(gate_BD)};
  const kernels::GateBackwardArgs args{.type = element_type(x),
                                       .dy = grad.const_data_ptr(),
                                       .x = x.const_data_ptr(),
                                       .gate = gate_BD.const_data_ptr(),
                                       .dx = found.x_BSD.mutable_data_ptr(),
                                       .dgate = found.gate_BD.mutable_data_ptr(),
                                       .scratch = nullptr,
                                       .rows = x.size(0) * x.size(1),
                                       .rows_of_sample = x.size(1),
                                       .dim = x.size(2)};
  launch_with_scratch(args, x);
  return found;
}

}  // namespace titanium::ops
