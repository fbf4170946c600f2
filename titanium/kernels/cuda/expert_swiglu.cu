#include "titanium/kernels/cuda/device/expert_row.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {
namespace {

constexpr int kBackwardBlocks = 4;  // per multiprocessor

__device__ int64_t rows_of(const ExpertSwigluBackwardArgs& args) {
  if (args.row_count == nullptr) return args.rows;
  return *args.row_count < args.rows ? *args.row_count : args.rows;
}

template <typename T, int N>
__global__ void __launch_bounds__(kMostRowThreads, kBackwardBlocks) backward_kernel(ExpertSwigluBackwardArgs args) {
  const int64_t row = blockIdx.x;
  if (row >= rows_of(args)) return;
  const int64_t index = index_of_weight(args.weights, row);
  const float weight = weight_at(args.weights, index);
  float dot = 0;
  for (int64_t column = int64_t{threadIdx.x} * N; column < args.dim; column += int64_t{blockDim.x} * N) {
    const auto raw_gate = load<T, N>(static_cast<const T*>(args.gate) + row * args.gate_stride + column);
    const auto raw_up = load<T, N>(static_cast<const T*>(args.up) + row * args.up_stride + column);
    const auto raw_grad = load<T, N>(static_cast<const T*>(args.dproduct) + row * args.dproduct_stride + column);
    float gate[N], up[N], grad[N], product[N];
    to_float(raw_gate, gate);
    to_float(raw_up, up);
    to_float(raw_grad, grad);
    for (int j = 0; j < N; ++j) {
      const WeightedSwigluGradients of = weighted_swiglu_gradients(gate[j], up[j], grad[j], weight);
      dot += of.dweight;
      product[j] = of.product;
      gate[j] = of.dgate;
      up[j] = of.dup;
    }
    store_floats<T, N>(static_cast<T*>(args.dgate) + row * args.dgate_stride + column, gate);
    store_floats<T, N>(static_cast<T*>(args.dup) + row * args.dup_stride + column, up);
    if (args.product != nullptr)
      store_floats<T, N>(static_cast<T*>(args.product) + row * args.product_stride + column, product);
  }
  write_weight_gradient(args.weights, index, dot);
}

}  // namespace

void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.gate, args.gate_stride, sizeof(T)) &&
                        vector_aligned(args.up, args.up_stride, sizeof(T)) &&
                        vector_aligned(args.dproduct, args.dproduct_stride, sizeof(T)) &&
                        vector_aligned(args.dgate, args.dgate_stride, sizeof(T)) &&
                        vector_aligned(args.dup, args.dup_stride, sizeof(T)) &&
                        (args.product == nullptr || vector_aligned(args.product, args.product_stride, sizeof(T)));
    launch(vector ? backward_kernel<T, kSize> : backward_kernel<T, 1>, args.rows,
           row_threads(vector ? args.dim / kSize : args.dim), 0, stream, args);
  });
}

}  // namespace titanium::kernels
