#include "titanium/kernels/adamw_update.h"
#include "titanium/kernels/cuda/device/chunk.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/stochastic_rounding.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int blocks(bool stochastic) { return stochastic ? 3 : 4; }  // per multiprocessor

// What stochastic rounding needs for one chunk.
struct Rounding {
  uint64_t key;
  int64_t origin;  // element with which the row of the chunk's first one begins
  int64_t first;   // its number
  uint32_t row;
  int64_t gap;
};

struct KernelArgs {
  AdamWArgs args;
  LogBetas logs;
};

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

template <bool kStochastic, typename P, int N>
__device__ void store_parameters(P* to, const float (&values)[N], const Rounding& rounding, int64_t at) {
  if constexpr (sizeof(P) == 4 || !kStochastic) {
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

template <bool kStochastic, int N, typename P, typename G, typename S>
__device__ void update_elements(const AdamWTensor& tensor, int64_t at, const AdamWUpdate& update,
                                const Rounding& rounding) {
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
  for (int j = 0; j < N; ++j) update.apply(gradient[j], parameter[j], exp_avg[j], exp_avg_sq[j]);
  store_floats<S, N>(exp_avgs, exp_avg);
  store_floats<S, N>(exp_avg_sqs, exp_avg_sq);
  store_parameters<kStochastic, P, N>(parameters, parameter, rounding, at);
  if constexpr (sizeof(P) == 4) {
    if (tensor.copy != nullptr) store_floats<bfloat16, N>(static_cast<bfloat16*>(tensor.copy) + at, parameter);
  }
}

template <bool kStochastic, typename P, typename G, typename S>
__device__ void update_chunk(const AdamWTensor& tensor, ChunkRange range, const AdamWUpdate& update, float step) {
  constexpr int kStep = step_of_widest(sizeof(P) > sizeof(S) ? sizeof(P) : sizeof(S));
  const bool vector = vector_aligned(tensor.parameter, 0, 1) && vector_aligned(tensor.gradient, 0, 1) &&
                      vector_aligned(tensor.exp_avg, 0, 1) && vector_aligned(tensor.exp_avg_sq, 0, 1) &&
                      vector_aligned(tensor.copy, 0, 1) && (!kStochastic || numbers_fit_steps(tensor, kStep));
  Rounding rounding = {};
  if constexpr (kStochastic) rounding = rounding_of(tensor, range.begin, step);
  int64_t scalars = range.begin;
  if (vector) {
    scalars += (range.end - range.begin) / kStep * kStep;
    for (int64_t at = range.begin + threadIdx.x * kStep; at < scalars; at += kThreads * kStep)
      update_elements<kStochastic, kStep, P, G, S>(tensor, at, update, rounding);
  }
  for (int64_t at = scalars + threadIdx.x; at < range.end; at += kThreads)
    update_elements<kStochastic, 1, P, G, S>(tensor, at, update, rounding);
}

template <bool kStochastic>
__global__ void __launch_bounds__(kThreads, blocks(kStochastic))
    adamw_kernel(const __grid_constant__ KernelArgs kernel) {
  const AdamWArgs& args = kernel.args;
  if (args.skip != nullptr && *args.skip != 0) return;
  const int64_t chunk = blockIdx.x;
  const AdamWTensor& tensor = args.tensors[entry_of_chunk(args.tensors, args.count, chunk)];
  const float step = tensor.step != nullptr ? *tensor.step : static_cast<float>(args.step);
  const AdamWUpdate update(args, kernel.logs, step);
  const ChunkRange range = range_of_chunk(tensor, tensor.count, chunk);
  with_type(tensor.parameter_type, [&](auto parameter) {
    with_type(tensor.gradient_type, [&](auto gradient) {
      with_type(tensor.state_type, [&](auto state) {
        update_chunk<kStochastic, decltype(parameter), decltype(gradient), decltype(state)>(tensor, range, update,
                                                                                            step);
      });
    });
  });
}

}  // namespace

void adamw(const AdamWArgs& args, GpuStream stream) {
  const KernelArgs kernel{args, LogBetas(args)};
  launch(args.stochastic_rounding ? adamw_kernel<true> : adamw_kernel<false>, args.chunks, kThreads, 0, stream, kernel);
}

}  // namespace titanium::kernels
