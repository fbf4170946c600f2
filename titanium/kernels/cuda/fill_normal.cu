#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "titanium/kernels/fill_normal.h"

namespace titanium::kernels {
namespace {

__device__ void store(void* out, bool bfloat16, int64_t index, float value) {
  if (bfloat16) {
    static_cast<__nv_bfloat16*>(out)[index] = __float2bfloat16_rn(value);
  } else {
    static_cast<float*>(out)[index] = value;
  }
}

__global__ void fill_normal_kernel(FillNormalArgs args) {
  const int64_t elements = args.rows * args.columns;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += step) {
    const uint64_t index = args.first + static_cast<uint64_t>(i / args.columns) * args.row_stride + i % args.columns;
    store(args.out, args.bfloat16, i, sample_normal(args.distribution, args.key, index));
  }
}

}  // namespace

void fill_normal_on_gpu(const FillNormalArgs& args, GpuStream stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMaxBlocks = 132 * 16;
  const int64_t blocks = (args.rows * args.columns + kThreads - 1) / kThreads;
  if (blocks == 0) return;
  fill_normal_kernel<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, stream>>>(args);
}

}  // namespace titanium::kernels
