// The second kernel of a gradient that blocks have summed in parts: Note [Second kernels].
#pragma once

#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {

struct PartsOfSum {
  const float* parts;  // [count, dim]
  int64_t count;
  void* sum;  // [dim]
  bool accumulate;
};

// kSums of equal `dim` in one launch.
template <int kSums>
struct SumPartsArgs {
  PartsOfSum of[kSums];
  ElementType sum_type;
  int64_t dim;
};

constexpr int kSumLanes = 32, kSumRows = 16;

// Adds the parts in order: a column for each lane, a share of the parts for each warp.
template <int kSums>
__global__ void __launch_bounds__(kSumLanes* kSumRows) sum_parts_kernel(SumPartsArgs<kSums> args) {
  __shared__ float of_row[kSumRows][kSumLanes];
  wait_for_first_kernel();
  const int blocks_each = static_cast<int>(gridDim.x) / kSums, which = static_cast<int>(blockIdx.x) / blocks_each;
  PartsOfSum mine = args.of[0];
#pragma unroll
  for (int i = 1; i < kSums; ++i) {
    if (which == i) mine = args.of[i];
  }
  const int lane = threadIdx.x % kSumLanes, line = threadIdx.x / kSumLanes;
  const int64_t column = (int64_t{blockIdx.x} - which * blocks_each) * kSumLanes + lane;
  float sum = 0;
  if (column < args.dim) {
#pragma unroll 8
    for (int64_t part = line; part < mine.count; part += kSumRows) sum += mine.parts[part * args.dim + column];
  }
  of_row[line][lane] = sum;
  __syncthreads();
  if (line != 0 || column >= args.dim) return;
  for (int other = 1; other < kSumRows; ++other) sum += of_row[other][lane];
  if (args.sum_type == ElementType::kBFloat16) {
    bfloat16* out = static_cast<bfloat16*>(mine.sum) + column;
    *out = static_cast<bfloat16>(mine.accumulate ? static_cast<float>(*out) + sum : sum);
  } else {
    float* out = static_cast<float*>(mine.sum) + column;
    *out = mine.accumulate ? *out + sum : sum;
  }
}

template <int kSums>
void launch_sum_of_parts(const SumPartsArgs<kSums>& args, GpuStream stream) {
  launch_second(sum_parts_kernel<kSums>, kSums * ceil_div(args.dim, kSumLanes), kSumLanes * kSumRows, stream, args);
}

}  // namespace titanium::kernels
