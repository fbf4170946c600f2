#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/order_parts.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;

// A block has a part, and sums the counts of the parts before it in both orders.
__global__ void __launch_bounds__(kThreads) order_kernel(OrderPartsArgs args) {
  __shared__ BlockSumRoom<int> rooms[2];
  const int experts = static_cast<int>(args.experts), sources = static_cast<int>(args.sources);
  const int part = static_cast<int>(blockIdx.x), source = part / experts, expert = part % experts;
  int arrived_before = 0, sorted_before = 0;
  for (int other = threadIdx.x; other < sources * experts; other += kThreads) {
    const int count = args.counts[other], its_expert = other % experts;
    if (other < part) arrived_before += count;
    if (its_expert < expert || (its_expert == expert && other < part)) sorted_before += count;
  }
  const int arrival = block_sum<kThreads>(arrived_before, rooms[0]);
  const int row = block_sum<kThreads>(sorted_before, rooms[1]), count = args.counts[part];
  for (int i = threadIdx.x; i < count; i += kThreads) {
    args.row_of_arrival[arrival + i] = row + i;
    args.arrival_of_row[row + i] = arrival + i;
  }
  if (source == sources - 1 && threadIdx.x == 0) args.ends[expert] = row + count;
}

}  // namespace

void order_parts(const OrderPartsArgs& args, GpuStream stream) {
  launch(order_kernel, args.sources * args.experts, kThreads, 0, stream, args);
}

}  // namespace titanium::kernels
