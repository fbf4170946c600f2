// Distributed checkpoints: checksum, saving with all bytes on the disk, loading out of the page cache, and the index of
// a large run. The folder is made under the working directory, which should be on the disk in question.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>

#include <filesystem>

#include "titanium/checkpoint/crc32.h"
#include "titanium/checkpoint/dcp_reader.h"
#include "titanium/checkpoint/dcp_writer.h"

namespace titanium::checkpoint {
namespace {

constexpr int64_t kTensors = 32;
constexpr Shape::value_type kRows = 2048, kColumns = 4096;  // 32 MiB in float32
constexpr const char* kFolder = "bench_dcp.tmp";

std::vector<DcpTensorItem> items() {
  const Shape shape = {kRows, kColumns};
  std::vector<DcpTensorItem> items;
  for (int64_t i = 0; i < kTensors; ++i) {
    items.push_back({std::to_string(i), shape, {{0, 0}, shape}, at::ones(shape, at::kFloat), false, {}});
  }
  return items;
}

void set_rate(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kTensors * kRows * kColumns * 4);
}

void save(const std::vector<DcpTensorItem>& tensors, int files) {
  const DcpPart part = write_dcp_files(kFolder, 0, tensors, {}, files);
  publish_dcp(kFolder, std::span(&part, 1), {});
}

void bench_crc32(benchmark::State& state) {
  const std::vector<std::byte> block(1 << 20);
  for (auto _ : state) benchmark::DoNotOptimize(crc32(block));
  state.SetBytesProcessed(state.iterations() << 20);
}
BENCHMARK(bench_crc32);

void bench_save(benchmark::State& state) {
  const auto tensors = items();
  for (auto _ : state) {
    save(tensors, static_cast<int>(state.range(0)));
  }
  std::filesystem::remove_all(kFolder);
  set_rate(state);
}
BENCHMARK(bench_save)->ArgName("files")->Arg(1)->Arg(2)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);

void bench_load(benchmark::State& state, Dtype dtype) {
  const auto tensors = items();
  save(tensors, 2);
  const Tensor destination = at::empty({kRows, kColumns}, at::TensorOptions(dtype));
  for (auto _ : state) {
    const DcpReader reader(kFolder);
    for (const auto& item : tensors) reader.read_box(item.name, item.global_shape, item.box, destination);
  }
  std::filesystem::remove_all(kFolder);
  set_rate(state);
}
BENCHMARK_CAPTURE(bench_load, float32, at::kFloat)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_load, bfloat16, at::kBFloat16)->UseRealTime()->Unit(benchmark::kMillisecond);

// Llama 3 8B with Adam's two states on that many ranks.
DcpMetadata large_index(int64_t ranks) {
  DcpMetadata metadata;
  for (int64_t i = 0; i < 3 * 291; ++i) {
    const std::string name = "optimizer.state.layers." + std::to_string(i) + ".feed_forward.w1.weight.exp_avg";
    DcpTensor tensor{at::kFloat, false, {14336, 4096}, {}};
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t rows = 14336 / ranks;
      tensor.chunks.push_back({{rank * rows, 0}, {rows, 4096}});
      metadata.locations[{name, Shape{rank * rows, 0}}] = {
          "__" + std::to_string(rank) + "_0.distcp", i << 24, 1 << 24, {}};
    }
    metadata.entries[name] = tensor;
  }
  return metadata;
}

void bench_format_index(benchmark::State& state) {
  const DcpMetadata metadata = large_index(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(format_dcp_metadata(metadata));
  state.counters["bytes"] = static_cast<double>(format_dcp_metadata(metadata).size());
}
BENCHMARK(bench_format_index)->ArgName("ranks")->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);

void bench_parse_index(benchmark::State& state) {
  const std::string bytes = format_dcp_metadata(large_index(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(parse_dcp_metadata(std::as_bytes(std::span(bytes)), "index"));
}
BENCHMARK(bench_parse_index)->ArgName("ranks")->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace titanium::checkpoint

BENCHMARK_MAIN();
