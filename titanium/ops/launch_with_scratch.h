// Launches of kernels that need memory for one launch.
#pragma once

#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {

// Queues a kernel with as much scratch memory on the device of x as its arguments ask for. The memory goes back to
// the allocator when the launch is queued, which hands it out again only to what is queued after that.
template <typename Args>
void launch_with_scratch(Args args, const Tensor& x) {
  const Tensor scratch = scratch_beside(x, scratch_bytes(args));
  args.scratch = static_cast<decltype(args.scratch)>(scratch.mutable_data_ptr());
  launch(args);
}

}  // namespace titanium::ops
