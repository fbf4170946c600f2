#include "titanium/ops/swiglu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "titanium/base/error.h"
#include "titanium/ops/cuda_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

Tensor forward_kernel(const Tensor& gate_TF, const Tensor& up_TF) {
  const int64_t rows = gate_TF.size(0), dim = gate_TF.size(1);
  const Tensor product_TF = at::empty_like(gate_TF);
  launch(kernels::SwigluForwardArgs{.type = element_type(gate_TF),
                                    .gate = gate_TF.const_data_ptr(),
                                    .up = up_TF.const_data_ptr(),
                                    .product = product_TF.mutable_data_ptr(),
                                    .gate_stride = dim,
                                    .up_stride = dim,
                                    .product_stride = dim,
                                    .rows = rows,
                                    .dim = dim});
  return product_TF;
}

// Each result over the argument that it has most to do with.
SwigluGrads backward_kernel(const Tensor& grad_product_TF, const Tensor& gate_TF, const Tensor& up_TF) {
  const int64_t rows = gate_TF.size(0), dim = gate_TF.size(1);
  launch(kernels::SwigluBackwardArgs{.type = element_type(gate_TF),
                                     .dproduct = grad_product_TF.const_data_ptr(),
                                     .gate = gate_TF.const_data_ptr(),
                                     .up = up_TF.const_data_ptr(),
                                     .dgate = gate_TF.mutable_data_ptr(),
                                     .dup = up_TF.mutable_data_ptr(),
                                     .product = grad_product_TF.mutable_data_ptr(),
                                     .dproduct_stride = dim,
                                     .gate_stride = dim,
                                     .up_stride = dim,
                                     .dgate_stride = dim,
                                     .dup_stride = dim,
                                     .product_stride = dim,
                                     .rows = rows,
                                     .dim = dim});
  return {gate_TF, up_TF, grad_product_TF};
}

void check_contiguous(std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) TI_ASSERT(tensor.is_contiguous(), "SwiGLU of a strided tensor");
}

}  // namespace

Tensor swiglu_forward(const Tensor& gate_TF, const Tensor& up_TF) {
  check_contiguous({gate_TF, up_TF});
  if (uses_kernels(gate_TF)) return forward_kernel(gate_TF, up_TF);
  return at::silu(gate_TF).mul_(up_TF);
}

SwigluGrads swiglu_backward(Tensor grad_product_TF, Tensor gate_TF, Tensor up_TF) {
  check_contiguous({grad_product_TF, gate_TF, up_TF});
  if (uses_kernels(gate_TF)) return backward_kernel(grad_product_TF, gate_TF, up_TF);
  const Tensor silu_TF = at::silu(gate_TF);
  return {.gate_TF = at::silu_backward(at::mul(grad_product_TF, up_TF), gate_TF),
          .up_TF = at::mul(grad_product_TF, silu_TF),
          .product_TF = at::mul(silu_TF, up_TF)};
}

}  // namespace titanium::ops
