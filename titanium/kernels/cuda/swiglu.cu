#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kForwardBlocks = 8;  // per multiprocessor
constexpr int kBackwardBlocks = 4;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kForwardBlocks) forward_kernel(SwigluForwardArgs args) {
  Magnitude<T> magnitude;
  const int64_t words = args.dim / N, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < args.rows * words; i += step) {
    const int64_t row = quotient(i, words), column = (i - row * words) * N;
    const auto raw_gate = load<T, N>(static_cast<const T*>(args.gate) + row * args.gate_stride + column);
    const auto raw_up = load<T, N>(static_cast<const T*>(args.up) + row * args.up_stride + column);
    float gate[N], up[N];
    to_float(raw_gate, gate);
    to_float(raw_up, up);
    for (int j = 0; j < N; ++j) up[j] = swiglu_product(gate[j], up[j]);
    const auto product = from_float<T, N>(up);
    if (args.product != nullptr)
      store<T, N>(static_cast<T*>(args.product) + row * args.product_stride + column, product);
    if (args.amax != nullptr) magnitude.add(product);
  }
  raise_to_block<kThreads>(args.amax, magnitude);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks) backward_kernel(SwigluBackwardArgs args) {
  Magnitude<T> of_dgate, of_dup;
  const int64_t words = args.dim / N, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < args.rows * words; i += step) {
    const int64_t row = quotient(i, words), column = (i - row * words) * N;
    const auto raw_gate = load<T, N>(static_cast<const T*>(args.gate) + row * args.gate_stride + column);
    const auto raw_up = load<T, N>(static_cast<const T*>(args.up) + row * args.up_stride + column);
    const auto raw_grad = load<T, N>(static_cast<const T*>(args.dproduct) + row * args.dproduct_stride + column);
    float gate[N], up[N], grad[N], product[N];
    to_float(raw_gate, gate);
    to_float(raw_up, up);
    to_float(raw_grad, grad);
    for (int j = 0; j < N; ++j) {
      const float s = sigmoid(gate[j]), silu = gate[j] * s;
      const float slope = s * (1.0F + gate[j] * (1.0F - s));
      product[j] = swiglu_product(gate[j], up[j]);
      gate[j] = grad[j] * up[j] * slope;
      up[j] = grad[j] * silu;
    }
    const auto dgate = from_float<T, N>(gate), dup = from_float<T, N>(up);
    store<T, N>(static_cast<T*>(args.dgate) + row * args.dgate_stride + column, dgate);
    store<T, N>(static_cast<T*>(args.dup) + row * args.dup_stride + column, dup);
    if (args.dgate_amax != nullptr) of_dgate.add(dgate);
    if (args.dup_amax != nullptr) of_dup.add(dup);
    if (args.product != nullptr)
      store_floats<T, N>(static_cast<T*>(args.product) + row * args.product_stride + column, product);
  }
  raise_to_block<kThreads>(args.dgate_amax, of_dgate);
  raise_to_block<kThreads>(args.dup_amax, of_dup);
}

}  // namespace

void swiglu_forward(const SwigluForwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.gate, args.gate_stride, sizeof(T)) &&
                        vector_aligned(args.up, args.up_stride, sizeof(T)) &&
                        (args.product == nullptr || vector_aligned(args.product, args.product_stride, sizeof(T)));
    const int64_t words = args.rows * (vector ? args.dim / kSize : args.dim);
    launch(vector ? forward_kernel<T, kSize> : forward_kernel<T, 1>, ceil_div(words, kThreads), kThreads, 0, stream,
           args);
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.gate, args.gate_stride, sizeof(T)) &&
                        vector_aligned(args.up, args.up_stride, sizeof(T)) &&
                        vector_aligned(args.dproduct, args.dproduct_stride, sizeof(T)) &&
                        vector_aligned(args.dgate, args.dgate_stride, sizeof(T)) &&
                        vector_aligned(args.dup, args.dup_stride, sizeof(T)) &&
                        (args.product == nullptr || vector_aligned(args.product, args.product_stride, sizeof(T)));
    const int64_t words = args.rows * (vector ? args.dim / kSize : args.dim);
    const bool with_amax = args.dgate_amax != nullptr || args.dup_amax != nullptr;  // two for a block: few blocks
    const int64_t tasks = ceil_div(words, kThreads);
    launch(vector ? backward_kernel<T, kSize> : backward_kernel<T, 1>,
           with_amax ? resident_blocks(tasks, kBackwardBlocks) : tasks, kThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
