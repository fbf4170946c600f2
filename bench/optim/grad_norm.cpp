// The gradient norm in float64 against ATen's norm in the gradient's own dtype: the price of the accuracy.
#include "titanium/optim/grad_norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>

namespace titanium::optim {
namespace {

constexpr int64_t kElements = int64_t{64} << 20;

void set_rates(benchmark::State& state, Dtype dtype) {
  state.SetBytesProcessed(state.iterations() * kElements * static_cast<int64_t>(c10::elementSize(dtype)));
}

void bench_ours(benchmark::State& state, Dtype dtype) {
  Parameter parameter("weight", {kElements});
  parameter.grad = at::ones({kElements}, dtype);
  const std::vector<Parameter*> parameters = {&parameter};
  for (auto _ : state) benchmark::DoNotOptimize(total_norm(parameters));
  set_rates(state, dtype);
}

void bench_aten(benchmark::State& state, Dtype dtype) {
  const Tensor grad = at::ones({kElements}, dtype);
  for (auto _ : state) benchmark::DoNotOptimize(at::linalg_vector_norm(grad));
  set_rates(state, dtype);
}

BENCHMARK_CAPTURE(bench_ours, float32, at::kFloat)->UseRealTime();
BENCHMARK_CAPTURE(bench_aten, float32, at::kFloat)->UseRealTime();
BENCHMARK_CAPTURE(bench_ours, bfloat16, at::kBFloat16)->UseRealTime();
BENCHMARK_CAPTURE(bench_aten, bfloat16, at::kBFloat16)->UseRealTime();

}  // namespace
}  // namespace titanium::optim

BENCHMARK_MAIN();
