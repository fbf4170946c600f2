#include "titanium/ops/gelu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

constexpr const char* kTanh = "tanh";

Tensor rows_of(const Tensor& x) { return x.view({-1, x.size(-1)}); }

}  // namespace

Tensor gelu(const Tensor& x) {
  const Tensor y = at::empty(x.sizes(), x.options());
  write_gelu(y, x);
  return y;
}

void write_gelu(const Tensor& into, const Tensor& x) {
  if (!uses_kernels(x)) {
    Tensor out = into;
    at::gelu_out(out, x, kTanh);
    return;
  }
  const Tensor x_TM = rows_of(x), y_TM = rows_of(into);
  launch(kernels::GeluForwardArgs{.type = element_type(x),
                                  .x = x_TM.const_data_ptr(),
                                  .x_stride = x_TM.stride(0),
                                  .y = y_TM.mutable_data_ptr(),
                                  .y_stride = y_TM.stride(0),
                                  .rows = x_TM.size(0),
                                  .dim = x_TM.size(1)});
}

void write_gelu_backward(const Tensor& into, const Tensor& grad, const Tensor& x) {
  if (!uses_kernels(x)) {
    Tensor out = into;
    at::gelu_backward_out(out, grad, x, kTanh);
    return;
  }
  const Tensor x_TM = rows_of(x), grad_TM = rows_of(grad), dx_TM = rows_of(into);
  launch(kernels::GeluBackwardArgs{.type = element_type(x),
                                   .dy = grad_TM.const_data_ptr(),
                                   .dy_stride = grad_TM.stride(0),
                                   .x = x_TM.const_data_ptr(),
                                   .x_stride = x_TM.stride(0),
                                   .dx = dx_TM.mutable_data_ptr(),
                                   .dx_stride = dx_TM.stride(0),
                                   .rows = x_TM.size(0),
                                   .dim = x_TM.size(1)});
}

}  // namespace titanium::ops
