#include "titanium/ops/cuda_kernels.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace titanium::ops {

void fill_normal_on_current_stream(const kernels::FillNormalArgs& args) {
  kernels::fill_normal_on_cuda(args, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace titanium::ops
