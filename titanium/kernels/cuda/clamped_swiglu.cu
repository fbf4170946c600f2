#include "titanium/kernels/cuda/device/expert_row.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {
namespace {

constexpr int kForwardBlocks = 6;  // per multiprocessor
constexpr int kBackwardBlocks = 4;

// Gate and up are interleaved: 16 bytes, or one pair whose elements may lie anywhere.
template <typename T, int kPairs>
__device__ void load_pairs(const T* from, float (&values)[2 * kPairs]) {
  if constexpr (kPairs > 1) {
    to_float(load<T, 2 * kPairs>(from), values);
  } else {
    values[0] = static_cast<float>(from[0]);
    values[1] = static_cast<float>(from[1]);
  }
}
template <typename T, int kPairs>
__device__ void store_pairs(T* to, const float (&values)[2 * kPairs]) {
  if constexpr (kPairs > 1) {
    store_floats<T, 2 * kPairs>(to, values);
  } else {
    to[0] = static_cast<T>(values[0]);
    to[1] = static_cast<T>(values[1]);
  }
}

// Adds the expert's bias to values that begin at column `at`.
template <int kPairs, typename Args>
__device__ void add_bias(const Args& args, int expert, int64_t at, float (&values)[2 * kPairs]) {
  if (args.bias == nullptr) return;
  const int64_t index = expert * 2 * args.dim + at;
  constexpr int kWidth = kPairs > 1 ? 2 * kPairs : 1;
  float bias[2 * kPairs];
  if constexpr (kPairs > 1) {
    load_floats<kWidth>(args.bias, args.bias_type, index, bias);
  } else {
    for (int i = 0; i < 2; ++i) {
      float one[1];
      load_floats<1>(args.bias, args.bias_type, index + i, one);
      bias[i] = one[0];
    }
  }
  for (int i = 0; i < 2 * kPairs; ++i) values[i] += bias[i];
}

// One pair. Comparisons are such that NaN stays.
struct Clamped {
  __device__ Clamped(float g, float u, float limit)
      : gate_moves(!(g > limit)), up_moves(!(u > limit) && !(u < -limit)) {
    gate = gate_moves ? g : limit;
    up = up_moves ? u : (u > limit ? limit : -limit);
    s = sigmoid(kClampedSwigluSlope * gate);
  }
  __device__ float product() const { return gate * s * (up + 1.0F); }
  __device__ float gate_slope() const {
    return gate_moves ? (up + 1.0F) * s * (1.0F + kClampedSwigluSlope * gate * (1.0F - s)) : 0.0F;
  }
  __device__ float up_slope() const { return up_moves ? gate * s : 0.0F; }

  bool gate_moves, up_moves;
  float gate, up, s;
};

template <typename T, int kPairs>
__global__ void __launch_bounds__(kMostRowThreads, kForwardBlocks) forward_kernel(ClampedSwigluForwardArgs args) {
  const int64_t row = blockIdx.x;
  const int expert = expert_of_row(args.ends, args.num_experts, row);
  if (expert == args.num_experts) return;
  const T* fused = static_cast<const T*>(args.fused) + row * args.fused_stride;
  T* out = static_cast<T*>(args.product) + row * args.product_stride;
  for (int64_t column = int64_t{threadIdx.x} * kPairs; column < args.dim; column += int64_t{blockDim.x} * kPairs) {
    float values[2 * kPairs], product[kPairs];
    load_pairs<T, kPairs>(fused + 2 * column, values);
    add_bias<kPairs>(args, expert, 2 * column, values);
    for (int j = 0; j < kPairs; ++j) product[j] = Clamped(values[2 * j], values[2 * j + 1], args.limit).product();
    store_floats<T, kPairs>(out + column, product);
  }
}

template <typename T, int kPairs>
__global__ void __launch_bounds__(kMostRowThreads, kBackwardBlocks) backward_kernel(ClampedSwigluBackwardArgs args) {
  const int64_t row = blockIdx.x;
  const int expert = expert_of_row(args.ends, args.num_experts, row);
  if (expert == args.num_experts) return;
  const int64_t index = index_of_weight(args.weights, row);
  const float weight = weight_at(args.weights, index);
  float dot = 0;
  for (int64_t column = int64_t{threadIdx.x} * kPairs; column < args.dim; column += int64_t{blockDim.x} * kPairs) {
    float values[2 * kPairs], grad[kPairs], product[kPairs];
    load_pairs<T, kPairs>(static_cast<const T*>(args.fused) + row * args.fused_stride + 2 * column, values);
    to_float(load<T, kPairs>(static_cast<const T*>(args.dproduct) + row * args.dproduct_stride + column), grad);
    add_bias<kPairs>(args, expert, 2 * column, values);
    for (int j = 0; j < kPairs; ++j) {
      const Clamped pair(values[2 * j], values[2 * j + 1], args.limit);
      product[j] = pair.product();
      dot += grad[j] * product[j];
      product[j] *= weight;
      const float weighted = grad[j] * weight;
      values[2 * j] = weighted * pair.gate_slope();
      values[2 * j + 1] = weighted * pair.up_slope();
    }
    store_pairs<T, kPairs>(static_cast<T*>(args.dfused) + row * args.dfused_stride + 2 * column, values);
    if (args.product != nullptr)
      store_floats<T, kPairs>(static_cast<T*>(args.product) + row * args.product_stride + column, product);
  }
  write_weight_gradient(args.weights, index, dot);
}

// Pairs of a 128-bit word.
template <typename T>
constexpr int kWordPairs = kVectorSize<T> / 2;

template <typename T, typename Args>
bool all_aligned(const Args& args) {
  return 2 * args.dim % kVectorSize<T> == 0 && vector_aligned(args.fused, args.fused_stride, sizeof(T)) &&
         vector_aligned(args.product, args.product_stride, sizeof(T)) &&
         vector_aligned(args.bias, 2 * args.dim, element_size(args.bias_type));
}

}  // namespace

void clamped_swiglu_forward(const ClampedSwigluForwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kPairs = kWordPairs<T>;
    const bool vector = all_aligned<T>(args);
    launch(vector ? forward_kernel<T, kPairs> : forward_kernel<T, 1>, args.rows,
           row_threads(vector ? args.dim / kPairs : args.dim), 0, stream, args);
  });
}

void clamped_swiglu_backward(const ClampedSwigluBackwardArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kPairs = kWordPairs<T>;
    const bool vector = all_aligned<T>(args) && vector_aligned(args.dproduct, args.dproduct_stride, sizeof(T)) &&
                        vector_aligned(args.dfused, args.dfused_stride, sizeof(T));
    launch(vector ? backward_kernel<T, kPairs> : backward_kernel<T, 1>, args.rows,
           row_threads(vector ? args.dim / kPairs : args.dim), 0, stream, args);
  });
}

}  // namespace titanium::kernels
