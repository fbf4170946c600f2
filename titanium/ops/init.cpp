#include "titanium/ops/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"

namespace titanium::ops {
namespace {

kernels::FillNormalArgs describe(const Parameter& parameter, const ElementNumbers& numbers, uint64_t key,
                                 const kernels::NormalDistribution& distribution) {
  return {static_cast<char*>(parameter.value.data_ptr()) + numbers.begin * parameter.value.element_size(),
          parameter.value.scalar_type() == at::kBFloat16,
          numbers.rows,
          numbers.columns,
          static_cast<uint64_t>(numbers.first),
          static_cast<uint64_t>(numbers.row_stride),
          key,
          distribution};
}

void fill_on_cpu(const kernels::FillNormalArgs& whole) {
  const int64_t element_size = whole.bfloat16 ? 2 : 4;
  at::parallel_for(0, whole.rows, std::max<int64_t>(1, 4096 / whole.columns), [&](int64_t begin, int64_t end) {
    kernels::FillNormalArgs part = whole;
    part.out = static_cast<char*>(whole.out) + begin * whole.columns * element_size;
    part.rows = end - begin;
    part.first = whole.first + static_cast<uint64_t>(begin) * whole.row_stride;
    kernels::fill_normal_on_cpu(part);
  });
}

}  // namespace

// FNV-1a over the name, mixed with the seed: fixed for all times, because checkpoints of seeds do not exist.
uint64_t parameter_key(const std::string& fqn, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325 ^ (seed * 0x9E3779B97F4A7C15);
  for (const char character : fqn) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3;
  hash ^= hash >> 32;
  return hash * 0xD6E8FEB86659FD93;
}

void init_normal(Parameter& parameter, uint64_t seed, double std, double cutoff) {
  if (parameter.value.numel() == 0) return;
  const Dtype dtype = parameter.value.scalar_type();
  TI_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, "{} has dtype {}. Weights are made in float32 or bfloat16.",
           parameter.fqn, dtype_name(dtype));
  const uint64_t key = parameter_key(parameter.fqn, seed);
  const kernels::NormalDistribution distribution = kernels::truncated_normal(std, cutoff);
  for (const ElementNumbers& numbers : element_numbers(parameter)) {
    const kernels::FillNormalArgs args = describe(parameter, numbers, key, distribution);
    parameter.value.is_cuda() ? launch(args) : fill_on_cpu(args);
  }
  parameter.value_changed();
}

void init_uniform(Parameter& parameter, uint64_t seed, double bound) {
  if (parameter.value.numel() == 0) return;
  const c10::AutoGradMode no_grad(false);
  const uint64_t key = parameter_key(parameter.fqn, seed);
  const Tensor host = at::empty(parameter.value.sizes(), at::kFloat);
  auto* const out = host.mutable_data_ptr<float>();
  for (const ElementNumbers& numbers : element_numbers(parameter)) {
    at::parallel_for(0, numbers.elements(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = numbers.first + i / numbers.columns * numbers.row_stride + i % numbers.columns;
        const double unit = kernels::random_uniform(key, static_cast<uint64_t>(index));
        out[numbers.begin + i] = static_cast<float>(bound * (2 * unit - 1));
      }
    });
  }
  parameter.value.copy_(host);
  parameter.value_changed();
}

void init_constant(Parameter& parameter, double value) {
  const c10::AutoGradMode no_grad(false);
  parameter.value.fill_(value);
  parameter.value_changed();
}

}  // namespace titanium::ops
