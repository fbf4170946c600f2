#include "titanium/kernels/column_sums.h"
#include "titanium/kernels/cuda/device/column_parts.cuh"
#include "titanium/kernels/cuda/device/sum_parts.cuh"

namespace titanium::kernels {
namespace {

template <typename T, int N>
struct Rows {
  static constexpr int kInputs = 1;
  const ColumnSumsArgs& args;

  __device__ int of_sample(int64_t, int64_t) const { return 0; }
  __device__ const T* input(int, int64_t row) const { return static_cast<const T*>(args.x) + row * args.x_stride; }
  __device__ void add_share(int64_t, int64_t, int, const Raw<T, N> (&raw)[1], float (&sum)[N]) const {
    float x[N];
    to_float(raw[0], x);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += x[j];
  }
};

struct Task {
  ColumnSumsArgs args;
  ColumnGrid grid;
};

template <typename T, int N>
__global__ void __launch_bounds__(ColumnGrid::kThreads, ColumnGrid::kBlocks) parts_kernel(Task task) {
  let_second_kernel_come();
  sum_columns<T, N>(task.grid, Rows<T, N>{task.args}, task.args.scratch);
}

bool takes_vectors(const ColumnSumsArgs& args) {
  const int64_t size = element_size(args.type);
  return args.dim * size % 16 == 0 && vector_aligned(args.x, args.x_stride, size);
}

ColumnGrid grid_of(const ColumnSumsArgs& args) {
  const int64_t columns = takes_vectors(args) ? 16 / element_size(args.type) : 1;
  return {args.rows, args.rows, args.dim, static_cast<int>(columns)};
}

}  // namespace

void column_sums(const ColumnSumsArgs& args, GpuStream stream) {
  const Task task{args, grid_of(args)};
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    launch(takes_vectors(args) ? parts_kernel<T, kVectorSize<T>> : parts_kernel<T, 1>, task.grid.blocks(),
           ColumnGrid::kThreads, 0, stream, task);
  });
  launch_sum_of_parts<1>({{{args.scratch, task.grid.parts, args.sums, args.accumulate}}, args.sum_type, args.dim},
                         stream);
}

int64_t column_sums_scratch_bytes(const ColumnSumsArgs& args) { return grid_of(args).scratch_bytes(); }

}  // namespace titanium::kernels
