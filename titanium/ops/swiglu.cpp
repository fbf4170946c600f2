#include "titanium/ops/swiglu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

SwigluOutput forward_kernel(const Tensor& gate_TF, const Tensor& up_TF, bool with_amax) {
  const int64_t rows = gate_TF.size(0), dim = gate_TF.size(1);
  const Tensor product_TF = at::empty_like(gate_TF), amax = with_amax ? zero_beside(gate_TF) : Tensor();
  launch(kernels::SwigluForwardArgs{.type = element_type(gate_TF),
                                    .gate = gate_TF.const_data_ptr(),
                                    .up = up_TF.const_data_ptr(),
                                    .product = product_TF.mutable_data_ptr(),
                                    .gate_stride = dim,
                                    .up_stride = dim,
                                    .product_stride = dim,
                                    .rows = rows,
                                    .dim = dim,
                                    .amax = float_memory(amax)});
  return {product_TF, amax};
}

// Each result over the argument that it has most to do with.
SwigluGrads backward_kernel(const Tensor& grad_product_TF, const Tensor& gate_TF, const Tensor& up_TF,
                            SwigluBackwardOptions options) {
  const int64_t rows = gate_TF.size(0), dim = gate_TF.size(1);
  const Tensor gate_amax = options.amax ? zero_beside(gate_TF) : Tensor();
  const Tensor up_amax = options.amax ? zero_beside(gate_TF) : Tensor();
  launch(kernels::SwigluBackwardArgs{.type = element_type(gate_TF),
                                     .dproduct = grad_product_TF.const_data_ptr(),
                                     .gate = gate_TF.const_data_ptr(),
                                     .up = up_TF.const_data_ptr(),
                                     .dgate = gate_TF.mutable_data_ptr(),
                                     .dup = up_TF.mutable_data_ptr(),
                                     .product = options.product ? grad_product_TF.mutable_data_ptr() : nullptr,
                                     .dproduct_stride = dim,
                                     .gate_stride = dim,
                                     .up_stride = dim,
                                     .dgate_stride = dim,
                                     .dup_stride = dim,
                                     .product_stride = dim,
                                     .rows = rows,
                                     .dim = dim,
                                     .dgate_amax = float_memory(gate_amax),
                                     .dup_amax = float_memory(up_amax)});
  return {gate_TF, up_TF, options.product ? grad_product_TF : Tensor(), gate_amax, up_amax};
}

void check_contiguous(std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) TI_ASSERT(tensor.is_contiguous(), "SwiGLU of a strided tensor");
}

}  // namespace

SwigluOutput swiglu_forward(const Tensor& gate_TF, const Tensor& up_TF, bool with_amax) {
  check_contiguous({gate_TF, up_TF});
  if (uses_kernels(gate_TF)) return forward_kernel(gate_TF, up_TF, with_amax);
  return {at::silu(gate_TF).mul_(up_TF), {}};
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): what is taken over is free when this returns.
SwigluGrads swiglu_backward(Tensor grad_product_TF, Tensor gate_TF, Tensor up_TF, SwigluBackwardOptions options) {
  check_contiguous({grad_product_TF, gate_TF, up_TF});
  if (uses_kernels(gate_TF)) return backward_kernel(grad_product_TF, gate_TF, up_TF, options);
  const Tensor silu_TF = at::silu(gate_TF);
  return {.gate_TF = at::silu_backward(at::mul(grad_product_TF, up_TF), gate_TF),
          .up_TF = at::mul(grad_product_TF, silu_TF),
          .product_TF = options.product ? at::mul(silu_TF, up_TF) : Tensor(),
          .gate_amax = {},
          .up_amax = {}};
}

}  // namespace titanium::ops
