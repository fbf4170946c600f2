#include "titanium/ops/kernel_choice.h"

#include <ATen/ops/empty.h>

#include <atomic>

namespace titanium::ops {
namespace {

std::atomic<bool> reference_ops = false;

}  // namespace

bool uses_kernels(const Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat) && !reference_ops;
}

void set_reference_ops(bool on) { reference_ops = on; }

kernels::ElementType element_type(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::ElementType::kBFloat16 : kernels::ElementType::kFloat32;
}

Tensor scratch_beside(const Tensor& x, int64_t bytes) { return at::empty({bytes}, x.options().dtype(at::kByte)); }

}  // namespace titanium::ops
