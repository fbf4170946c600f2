#include "titanium/optim/grad_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/optim/tensor_list.h"

namespace titanium::optim {
namespace {

// A fixed length, so that the order of summation does not depend on the number of threads.
constexpr int64_t kCpuChunk = 1 << 15;
// ATen's float64 reduction first casts its input: this bounds the copy (64 MiB).
constexpr int64_t kDeviceChunk = 1 << 23;

template <typename T>
double widen(T x) {
  if constexpr (std::is_same_v<T, double>) return x;
  return static_cast<float>(x);
}

// Several accumulators break the chain of dependent additions, which is what bounds a plain loop.
template <typename T>
double chunk_sum_of_squares(const T* data, int64_t size) {
  constexpr int64_t kLanes = 16;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double x = widen(data[i + lane]);
      lanes[lane] += x * x;
    }
  }
  double sum = 0;
  for (; i < size; ++i) {
    const double x = widen(data[i]);
    sum += x * x;
  }
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
double cpu_sum_of_squares(const Tensor& contiguous) {
  const T* data = contiguous.const_data_ptr<T>();
  const int64_t size = contiguous.numel();
  const int64_t chunks = (size + kCpuChunk - 1) / kCpuChunk;
  std::vector<double> sums(chunks);
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kCpuChunk;
      sums[chunk] = chunk_sum_of_squares(data + first, std::min(kCpuChunk, size - first));
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

double cpu_sum_of_squares(const Tensor& grad) {
  const Tensor contiguous = grad.contiguous();
  switch (grad.scalar_type()) {
    case at::kDouble:
      return cpu_sum_of_squares<double>(contiguous);
    case at::kFloat:
      return cpu_sum_of_squares<float>(contiguous);
    case at::kBFloat16:
      return cpu_sum_of_squares<c10::BFloat16>(contiguous);
    case at::kHalf:
      return cpu_sum_of_squares<c10::Half>(contiguous);
    default:
      TI_ASSERT(false, "no gradient norm for {}", c10::toString(grad.scalar_type()));
  }
  return 0;
}

void append_device_sums_of_squares(const Tensor& grad, std::vector<Tensor>& sums) {
  const Tensor flat = grad.reshape({-1});
  for (int64_t first = 0; first < flat.numel(); first += kDeviceChunk) {
    const Tensor chunk = flat.narrow(0, first, std::min(kDeviceChunk, flat.numel() - first));
    sums.push_back(at::linalg_vector_norm(chunk, 2, {}, /*keepdim=*/false, at::kDouble).square());
  }
}

// All of them in one launch.
Tensor kernel_sum_of_squares(const std::vector<Tensor>& grads) {
  std::vector<Tensor> contiguous;  // lives until the launch
  std::vector<kernels::SumOfSquaresTensor> entries;
  for (const Tensor& grad : grads) {
    contiguous.push_back(grad.contiguous());
    entries.push_back({.data = contiguous.back().const_data_ptr(),
                       .count = grad.numel(),
                       .type = ops::element_type(grad),
                       .first_chunk = 0});
  }
  const Tensor& beside = grads.front();
  const auto list = upload(std::move(entries), beside.device());
  const Tensor result = at::empty({}, beside.options().dtype(at::kDouble));
  kernels::SumOfSquaresArgs args{.tensors = list.entries(),
                                 .count = list.count,
                                 .chunks = list.chunks,
                                 .partials = nullptr,
                                 .result = result.mutable_data_ptr<double>()};
  const Tensor partials = ops::scratch_beside(beside, ops::scratch_bytes(args));
  args.partials = static_cast<double*>(partials.mutable_data_ptr());
  ops::launch(args);
  return result;
}

std::vector<Tensor> gradients(std::span<Parameter* const> parameters) {
  std::vector<Tensor> grads;
  grads.reserve(parameters.size());
  for (const Parameter* parameter : parameters) {
    if (parameter->grad.defined() && parameter->grad.numel() > 0) grads.push_back(parameter->grad);
  }
  return grads;
}

}  // namespace

Tensor sum_of_squares(std::span<Parameter* const> parameters) {
  const c10::NoGradGuard no_grad;
  const std::vector<Tensor> grads = gradients(parameters);
  if (grads.empty()) {
    const Device device = parameters.empty() ? Device(at::kCPU) : parameters[0]->value.device();
    return at::scalar_tensor(0.0, at::TensorOptions(at::kDouble).device(device));
  }
  if (grads.front().is_cpu()) {
    double sum = 0;
    for (const Tensor& grad : grads) sum += cpu_sum_of_squares(grad);
    return at::scalar_tensor(sum, at::kDouble);
  }
  if (std::all_of(grads.begin(), grads.end(), ops::uses_kernels)) return kernel_sum_of_squares(grads);
  std::vector<Tensor> sums;
  for (const Tensor& grad : grads) append_device_sums_of_squares(grad, sums);
  return at::stack(sums).sum();
}

Tensor total_norm(std::span<Parameter* const> parameters) { return sum_of_squares(parameters).sqrt_(); }

Tensor clip_scale(const Tensor& norm, double max_norm) {
  return norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
}

void clip_grads(std::span<Parameter* const> parameters, double max_norm, const Tensor& norm) {
  const c10::NoGradGuard no_grad;
  const Tensor scale = clip_scale(norm, max_norm);
  // Reading the scale costs nothing on the CPU, and saves a pass over the gradients in most steps.
  if (scale.is_cpu() && scale.item<double>() == 1.0) return;
  std::map<Dtype, std::vector<Tensor>> by_dtype;
  for (const Tensor& grad : gradients(parameters)) by_dtype[grad.scalar_type()].push_back(grad);
  for (const auto& [dtype, grads] : by_dtype) at::_foreach_mul_(grads, scale.to(dtype));
}

}  // namespace titanium::optim
