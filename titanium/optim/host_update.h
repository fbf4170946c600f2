// The update of kernels/adamw.h on the host, for what ATen's fused kernels cannot do: stochastic rounding.
#pragma once

#include "titanium/kernels/adamw.h"

namespace titanium::optim {

// Updates one tensor. All pointers are host memory, parameter, gradient and moments bf16; args' list is not read. The
// random bits are those of the kernel, so results differ from its only where fp32's rounding crosses a random number.
void update_on_host(const kernels::AdamWTensor& tensor, const kernels::AdamWArgs& args);

}  // namespace titanium::optim
