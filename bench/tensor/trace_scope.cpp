// The price of a named range: while nobody looks, and while somebody does who keeps nothing.
#include "titanium/tensor/trace_scope.h"

#include <benchmark/benchmark.h>

namespace titanium {
namespace {

void bench_range(benchmark::State& state, bool watched) {
  TraceScope::set_profiled(watched);
  for (auto _ : state) {
    const TraceScope scope("all_gather", "fsdp");
    benchmark::DoNotOptimize(&scope);
  }
  TraceScope::set_profiled(false);
}

BENCHMARK_CAPTURE(bench_range, unwatched, false);
BENCHMARK_CAPTURE(bench_range, watched, true);

}  // namespace
}  // namespace titanium

BENCHMARK_MAIN();
