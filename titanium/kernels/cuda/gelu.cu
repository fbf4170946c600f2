#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/gelu.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kForwardBlocks = 8;  // per multiprocessor
constexpr int kBackwardBlocks = 6;

constexpr float kSlope = 1.59576912F;         // 2 sqrt(2 / pi)
constexpr float kCubic = kSlope * 0.044715F;  // of x^3
constexpr float kThreeCubic = 3.0F * kCubic;  // of x^2 in the derivative
__device__ float sigmoid_of(float x) { return sigmoid(x * (kSlope + kCubic * x * x)); }

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kForwardBlocks) forward_kernel(GeluForwardArgs args) {
  const int64_t words = args.dim / N, i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.rows * words) return;
  const int64_t row = quotient(i, words), column = (i - row * words) * N;
  float x[N];
  to_float(load<T, N>(static_cast<const T*>(args.x) + row * args.x_stride + column), x);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] *= sigmoid_of(x[j]);
  store_floats<T, N>(static_cast<T*>(args.y) + row * args.y_stride + column, x);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks) backward_kernel(GeluBackwardArgs args) {
  const int64_t words = args.dim / N, i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.rows * words) return;
  const int64_t row = quotient(i, words), column = (i - row * words) * N;
  const auto raw_x = load<T, N>(static_cast<const T*>(args.x) + row * args.x_stride + column);
  const auto raw_dy = load<T, N>(static_cast<const T*>(args.dy) + row * args.dy_stride + column);
  float x[N], dy[N];
  to_float(raw_x, x);
  to_float(raw_dy, dy);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float s = sigmoid_of(x[j]);
    dy[j] *= s + x[j] * s * (1.0F - s) * (kSlope + kThreeCubic * x[j] * x[j]);
  }
  store_floats<T, N>(static_cast<T*>(args.dx) + row * args.dx_stride + column, dy);
}

}  // namespace

void gelu_forward(const GeluForwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.x, args.x_stride, sizeof(T)) &&
                        vector_aligned(args.y, args.y_stride, sizeof(T));
    const int64_t words = args.rows * (vector ? args.dim / kSize : args.dim);
    launch(vector ? forward_kernel<T, kSize> : forward_kernel<T, 1>, ceil_div(words, kThreads), kThreads, 0, stream,
           args);
  });
}

void gelu_backward(const GeluBackwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = kVectorSize<T>;
    const bool vector = args.dim % kSize == 0 && vector_aligned(args.x, args.x_stride, sizeof(T)) &&
                        vector_aligned(args.dy, args.dy_stride, sizeof(T)) &&
                        vector_aligned(args.dx, args.dx_stride, sizeof(T));
    const int64_t words = args.rows * (vector ? args.dim / kSize : args.dim);
    launch(vector ? backward_kernel<T, kSize> : backward_kernel<T, 1>, ceil_div(words, kThreads), kThreads, 0, stream,
           args);
  });
}

}  // namespace titanium::kernels
