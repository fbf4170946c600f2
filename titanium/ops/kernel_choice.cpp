#include "titanium/ops/kernel_choice.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <atomic>

namespace titanium::ops {
namespace {

std::atomic<bool> reference_ops = false;

}  // namespace

bool kernels_have(Dtype dtype) { return dtype == at::kBFloat16 || dtype == at::kFloat; }

bool uses_kernels(const Tensor& x) { return kernels_have(x.scalar_type()) && runs_kernels(x.device()); }

bool runs_kernels(Device device) { return device.is_cuda() && !reference_ops; }

void set_reference_ops(bool on) { reference_ops = on; }

kernels::ElementType element_type(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::ElementType::kBFloat16 : kernels::ElementType::kFloat32;
}

Tensor scratch_beside(const Tensor& x, int64_t bytes) { return at::empty({bytes}, x.options().dtype(at::kByte)); }
Tensor zero_beside(const Tensor& x) { return at::zeros({}, x.options().dtype(at::kFloat)); }
float* float_memory(const Tensor& x) { return x.defined() ? x.mutable_data_ptr<float>() : nullptr; }

}  // namespace titanium::ops
