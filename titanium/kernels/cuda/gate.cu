#include "titanium/kernels/cuda/device/column_parts.cuh"
#include "titanium/kernels/cuda/device/sum_parts.cuh"
#include "titanium/kernels/gate.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kForwardBlocks = 8;  // per multiprocessor

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kForwardBlocks) forward_kernel(GateForwardArgs args) {
  const int64_t words = args.dim / N, i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.rows * words) return;
  const auto raw_residual = load<T, N>(static_cast<const T*>(args.residual) + i * N);
  const auto raw_x = load<T, N>(static_cast<const T*>(args.x) + i * N);
  const int64_t row = quotient(i, words), column = (i - row * words) * N;
  const int64_t at = quotient(row, args.rows_of_sample) * args.dim + column;
  float residual[N], x[N], gate[N];
  to_float(load_again<T, N>(static_cast<const T*>(args.gate) + at), gate);
  to_float(raw_residual, residual);
  to_float(raw_x, x);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = residual[j] + gate[j] * x[j];
  store_floats<T, N>(static_cast<T*>(args.y) + i * N, x);
}

template <typename T, int N>
struct Rows {
  static constexpr int kInputs = 2;
  const GateBackwardArgs& args;

  __device__ Raw<T, N> of_sample(int64_t sample, int64_t column) const {
    return load_again<T, N>(static_cast<const T*>(args.gate) + sample * args.dim + column);
  }
  __device__ const T* input(int which, int64_t row) const {
    return static_cast<const T*>(which == 0 ? args.dy : args.x) + row * args.dim;
  }
  __device__ void add_share(int64_t row, int64_t column, const Raw<T, N>& raw_gate, const Raw<T, N> (&raw)[2],
                            float (&sum)[N]) const {
    float gate[N], dy[N], x[N];
    to_float(raw_gate, gate);
    to_float(raw[0], dy);
    to_float(raw[1], x);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum[j] += dy[j] * x[j];
      dy[j] *= gate[j];
    }
    store_floats<T, N>(static_cast<T*>(args.dx) + row * args.dim + column, dy);
  }
};

struct BackwardTask {
  GateBackwardArgs args;
  ColumnGrid grid;
};

template <typename T, int N>
__global__ void __launch_bounds__(ColumnGrid::kThreads, ColumnGrid::kBlocks) backward_kernel(BackwardTask task) {
  let_second_kernel_come();
  sum_columns<T, N>(task.grid, Rows<T, N>{task.args}, task.args.scratch);
}

template <typename... Arrays>
bool take_vectors(int64_t dim, int64_t size, Arrays... arrays) {
  return dim * size % 16 == 0 && (vector_aligned(arrays, 0, size) && ...);
}

bool takes_vectors(const GateBackwardArgs& args) {
  return take_vectors(args.dim, element_size(args.type), args.dy, args.x, args.gate, static_cast<const void*>(args.dx));
}

ColumnGrid grid_of(const GateBackwardArgs& args) {
  const int64_t columns = takes_vectors(args) ? 16 / element_size(args.type) : 1;
  return {args.rows, args.rows_of_sample, args.dim, static_cast<int>(columns)};
}

}  // namespace

void gate_forward(const GateForwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    const bool vector =
        take_vectors(args.dim, sizeof(T), args.residual, args.x, args.gate, static_cast<const void*>(args.y));
    const int64_t words = args.rows * (vector ? args.dim / kVectorSize<T> : args.dim);
    launch(vector ? forward_kernel<T, kVectorSize<T>> : forward_kernel<T, 1>, ceil_div(words, kThreads), kThreads, 0,
           stream, args);
  });
}

void gate_backward(const GateBackwardArgs& args, GpuStream stream) {
  const BackwardTask task{args, grid_of(args)};
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    launch(takes_vectors(args) ? backward_kernel<T, kVectorSize<T>> : backward_kernel<T, 1>, task.grid.blocks(),
           ColumnGrid::kThreads, 0, stream, task);
  });
  launch_sum_of_parts<1>(
      {{{args.scratch, task.grid.parts, args.dgate, /*accumulate=*/false}}, args.type, task.grid.samples * args.dim},
      stream);
}

int64_t gate_backward_scratch_bytes(const GateBackwardArgs& args) { return grid_of(args).scratch_bytes(); }

}  // namespace titanium::kernels
