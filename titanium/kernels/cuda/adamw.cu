#include "titanium/kernels/adamw.h"
#include "titanium/kernels/cuda/chunk.cuh"
#include "titanium/kernels/cuda/launch.cuh"
#include "titanium/kernels/cuda/vector.cuh"
#include "titanium/kernels/stochastic_rounding.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4;  // per multiprocessor

// What stochastic rounding needs for one chunk.
struct Rounding {
  uint64_t key;
  int64_t origin;  // element with which the row of the chunk's first one begins
  int64_t first;   // its number
  uint32_t row;
  int64_t gap;
};

// The numbers of one update, the same for all elements.
struct Update {
  float decay;  // lr * weight_decay, or weight_decay where it is added to the gradient
  float keep1;  // 1 - beta1
  float beta2;
  float keep2;
  float step_size;  // lr / (1 - beta1^step)
  float root2;      // 1 / sqrt(1 - beta2^step)
  float eps;
  float clip_scale;
  bool decoupled;
  Rounding rounding;  // here because shared memory takes no registers
};

// In double: a bias correction is a difference of nearly equal numbers at first.
__device__ Update update_of(const AdamWArgs& args, double step) {
  const double lr = args.device_learning_rate != nullptr ? *args.device_learning_rate : args.learning_rate;
  Update update;
  update.decay = static_cast<float>(args.decoupled ? lr * args.weight_decay : args.weight_decay);
  update.keep1 = static_cast<float>(1 - args.beta1);
  update.beta2 = static_cast<float>(args.beta2);
  update.keep2 = static_cast<float>(1 - args.beta2);
  update.step_size = static_cast<float>(lr / (1 - pow(args.beta1, step)));
  update.root2 = static_cast<float>(1 / sqrt(1 - pow(args.beta2, step)));
  update.eps = static_cast<float>(args.eps);
  update.clip_scale = args.clip_scale != nullptr ? *args.clip_scale : 1.0F;
  update.decoupled = args.decoupled;
  return update;
}

__device__ void apply(const Update& update, float gradient, float& parameter, float& exp_avg, float& exp_avg_sq) {
  gradient *= update.clip_scale;
  if (update.decoupled) {
    parameter -= update.decay * parameter;
  } else {
    gradient += update.decay * parameter;
  }
  exp_avg += update.keep1 * (gradient - exp_avg);
  exp_avg_sq = update.beta2 * exp_avg_sq + update.keep2 * gradient * gradient;
  parameter -= update.step_size * exp_avg / (sqrtf(exp_avg_sq) * update.root2 + update.eps);
}

__device__ Rounding rounding_of(const AdamWTensor& tensor, int64_t begin, float step) {
  const int64_t rows = tensor.random_gap == 0 ? 0 : begin / tensor.random_row;
  return {tensor.random_key + static_cast<uint64_t>(step), rows * tensor.random_row,
          tensor.random_first + rows * (tensor.random_row + tensor.random_gap),
          static_cast<uint32_t>(tensor.random_row), tensor.random_gap};
}

__device__ uint64_t element_number(const Rounding& rounding, int64_t at) {
  const int64_t beyond = at - rounding.origin;
  const int64_t rows = rounding.gap == 0 ? 0 : static_cast<uint32_t>(beyond) / rounding.row;
  return static_cast<uint64_t>(rounding.first + beyond + rows * rounding.gap);
}

// Whether the elements of every wide step have numbers in a row, from a multiple of 4 on.
__device__ bool numbers_fit_steps(const AdamWTensor& tensor, int step) {
  return tensor.random_first % 4 == 0 &&
         (tensor.random_gap == 0 || (tensor.random_gap % 4 == 0 && tensor.random_row % step == 0));
}

template <typename P, int N>
__device__ void store_parameters(P* to, const float (&values)[N], const AdamWArgs& args, const Rounding& rounding,
                                 int64_t at) {
  if (sizeof(P) == 4 || !args.stochastic_rounding) {
    store_floats<P, N>(to, values);
    return;
  }
  Raw<bfloat16, N> raw;
  auto* out = reinterpret_cast<uint16_t*>(&raw);
  const uint64_t index = element_number(rounding, at);
  uint64_t bits = random_bits(rounding.key, index >> 2);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (j == 4) bits = random_bits(rounding.key, (index + 4) >> 2);  // wide steps begin at a multiple of 4
    out[j] = round_stochastically(values[j], rounding_bits(bits, index + j));
  }
  store<bfloat16, N>(reinterpret_cast<bfloat16*>(to), raw);
}

template <int N, typename P, typename G, typename S>
__device__ void update_elements(const AdamWTensor& tensor, int64_t at, const AdamWArgs& args, const Update& update) {
  P* parameters = static_cast<P*>(tensor.parameter) + at;
  S* exp_avgs = static_cast<S*>(tensor.exp_avg) + at;
  S* exp_avg_sqs = static_cast<S*>(tensor.exp_avg_sq) + at;
  const auto raw_gradient = load<G, N>(static_cast<const G*>(tensor.gradient) + at);
  const auto raw_parameter = load<P, N>(parameters);
  const auto raw_exp_avg = load<S, N>(exp_avgs);
  const auto raw_exp_avg_sq = load<S, N>(exp_avg_sqs);
  float gradient[N], parameter[N], exp_avg[N], exp_avg_sq[N];
  to_float(raw_gradient, gradient);
  to_float(raw_parameter, parameter);
  to_float(raw_exp_avg, exp_avg);
  to_float(raw_exp_avg_sq, exp_avg_sq);
#pragma unroll
  for (int j = 0; j < N; ++j) apply(update, gradient[j], parameter[j], exp_avg[j], exp_avg_sq[j]);
  store_floats<S, N>(exp_avgs, exp_avg);
  store_floats<S, N>(exp_avg_sqs, exp_avg_sq);
  store_parameters<P, N>(parameters, parameter, args, update.rounding, at);
}

template <typename P, typename G, typename S>
__device__ void update_chunk(const AdamWTensor& tensor, ChunkRange range, const AdamWArgs& args, const Update& update) {
  constexpr int kStep = step_of_widest(sizeof(P) > sizeof(S) ? sizeof(P) : sizeof(S));
  const bool vector = vector_aligned(tensor.parameter, 0, 1) && vector_aligned(tensor.gradient, 0, 1) &&
                      vector_aligned(tensor.exp_avg, 0, 1) && vector_aligned(tensor.exp_avg_sq, 0, 1) &&
                      (!args.stochastic_rounding || numbers_fit_steps(tensor, kStep));
  int64_t scalars = range.begin;
  if (vector) {
    scalars += (range.end - range.begin) / kStep * kStep;
    for (int64_t at = range.begin + threadIdx.x * kStep; at < scalars; at += kThreads * kStep)
      update_elements<kStep, P, G, S>(tensor, at, args, update);
  }
  for (int64_t at = scalars + threadIdx.x; at < range.end; at += kThreads)
    update_elements<1, P, G, S>(tensor, at, args, update);
}

template <typename P, typename G>
__device__ void update_chunk(const AdamWTensor& tensor, ChunkRange range, const AdamWArgs& args, const Update& update) {
  if (tensor.state_type == ElementType::kBFloat16) {
    update_chunk<P, G, bfloat16>(tensor, range, args, update);
  } else {
    update_chunk<P, G, float>(tensor, range, args, update);
  }
}

template <typename P>
__device__ void update_chunk(const AdamWTensor& tensor, ChunkRange range, const AdamWArgs& args, const Update& update) {
  if (tensor.gradient_type == ElementType::kBFloat16) {
    update_chunk<P, bfloat16>(tensor, range, args, update);
  } else {
    update_chunk<P, float>(tensor, range, args, update);
  }
}

__global__ void __launch_bounds__(kThreads, kBlocks) adamw_kernel(AdamWArgs args) {
  if (args.skip != nullptr && *args.skip != 0) return;
  __shared__ Update update;
  float step = -1;  // that `update` is for
  for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
    const AdamWTensor tensor = args.tensors[entry_of_chunk(args.tensors, args.count, chunk)];
    const float its_step = tensor.step != nullptr ? *tensor.step : static_cast<float>(args.step);
    if (its_step != step) {  // the same for all threads, and seldom: tensors mostly have one count
      step = its_step;
      __syncthreads();
      if (threadIdx.x == 0) update = update_of(args, step);
      __syncthreads();
    }
    const ChunkRange range = range_of_chunk(tensor, tensor.count, chunk);
    if (args.stochastic_rounding) {
      __syncthreads();
      if (threadIdx.x == 0) update.rounding = rounding_of(tensor, range.begin, step);
      __syncthreads();
    }
    if (tensor.parameter_type == ElementType::kBFloat16) {
      update_chunk<bfloat16>(tensor, range, args, update);
    } else {
      update_chunk<float>(tensor, range, args, update);
    }
  }
}

}  // namespace

void adamw(const AdamWArgs& args, CUstream_st* stream) {
  launch(adamw_kernel, resident_blocks(args.chunks, kBlocks), kThreads, 0, stream, args);
}

}  // namespace titanium::kernels
