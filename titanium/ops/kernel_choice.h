// Whether an operator takes our kernels or ATen's. Both mean the same; ours round each result once and move less
// memory.
#pragma once

#include "titanium/kernels/element_type.h"
#include "titanium/tensor/tensor.h"

namespace titanium::ops {

bool kernels_have(Dtype dtype);

// Whether our kernels compute with x: it is on a GPU, of a dtype that they have, and set_reference_ops is off.
bool uses_kernels(const Tensor& x);
bool runs_kernels(Device device);  // the same whatever the dtype, for kernels that take integers

// true: this process uses ATen's operators everywhere from now on. false: our kernels again. For comparisons.
void set_reference_ops(bool on);

kernels::ElementType element_type(const Tensor& x);  // of a tensor that kernels take

// Uninitialised memory beside x for one launch.
Tensor scratch_beside(const Tensor& x, int64_t bytes);
// An fp32 number that kernels can raise to a maximum, 0 now; and where it is, or null for an undefined tensor.
Tensor zero_beside(const Tensor& x);
float* float_memory(const Tensor& x);

}  // namespace titanium::ops
