// Distributed checkpoints: checksum, saving with all bytes on the disk, loading and verifying what is not in the page
// cache, and the index of a large run. The folder is made under the working directory, which should be on the disk in
// question; what is left of BENCH_KEEP=1 runs is loaded by later ones. bench/checkpoint_io.py puts dd and torch beside.
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "titanium/base/error.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/io/crc32.h"

namespace titanium::checkpoint {
namespace {

constexpr int64_t kTensors = 64;
constexpr Shape::value_type kRows = 2048, kColumns = 4096;  // 32 MiB in float32
constexpr const char* kFolder = "bench_dcp.tmp";

// Bits that no disk can compress.
std::vector<DcpTensorItem> items() {
  const Shape shape = {kRows, kColumns};
  const Tensor noise = at::randint(INT32_MAX, shape, at::TensorOptions(at::kInt));
  std::vector<DcpTensorItem> items;
  for (int64_t i = 0; i < kTensors; ++i) {
    items.push_back({std::to_string(i), shape, {{0, 0}, shape}, noise.add(i).view(at::kFloat), false, {}});
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

void forget_cached_files() {
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

void bench_crc32(benchmark::State& state) {
  const std::vector<std::byte> block(static_cast<size_t>(state.range(0)) << 10);
  for (auto _ : state) benchmark::DoNotOptimize(crc32(block));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(block.size()));
}
BENCHMARK(bench_crc32)->ArgName("KiB")->Arg(256)->Arg(256 << 10);

void bench_save(benchmark::State& state) {
  const auto tensors = items();
  for (auto _ : state) {
    state.PauseTiming();
    std::filesystem::remove_all(kFolder);
    ::sync();  // or freeing the old blocks is part of the next commit
    state.ResumeTiming();
    save(tensors, static_cast<int>(state.range(0)));
  }
  if (std::getenv("BENCH_KEEP") == nullptr) std::filesystem::remove_all(kFolder);
  set_rate(state);
}
BENCHMARK(bench_save)->ArgName("files")->Arg(1)->Arg(2)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);

// The checkpoint that is there, or one of our own.
class Saved {
 public:
  Saved() : ours_(!std::filesystem::exists(kFolder)) {
    if (ours_) save(items(), 2);
  }
  ~Saved() {
    if (ours_) std::filesystem::remove_all(kFolder);
  }

 private:
  bool ours_;
};

void bench_load(benchmark::State& state, Dtype dtype) {
  const Saved saved;
  std::vector<DcpRequest> requests;
  for (int64_t i = 0; i < kTensors; ++i) {
    const Shape shape = {kRows, kColumns};
    const Tensor destination = at::empty(shape, at::TensorOptions(dtype)).zero_();
    requests.push_back({std::to_string(i), shape, {{0, 0}, shape}, destination});
  }
  for (auto _ : state) {
    state.PauseTiming();
    forget_cached_files();
    state.ResumeTiming();
    DcpReader(kFolder).read(requests, static_cast<int>(state.range(0)));
  }
  set_rate(state);
}
BENCHMARK_CAPTURE(bench_load, float32, at::kFloat)
    ->ArgName("threads")
    ->Arg(0)
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_load, bfloat16, at::kBFloat16)
    ->ArgName("threads")
    ->Arg(0)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void bench_verify(benchmark::State& state) {
  const Saved saved;
  for (auto _ : state) {
    state.PauseTiming();
    forget_cached_files();
    state.ResumeTiming();
    TI_CHECK(DcpReader(kFolder).verify().empty(), "the checkpoint is damaged");
  }
  set_rate(state);
}
BENCHMARK(bench_verify)->UseRealTime()->Unit(benchmark::kMillisecond);

// What `dd` would reach with direct I/O and one thread.
void bench_direct_write(benchmark::State& state) {
  const size_t block = 16 << 20, total = kTensors * kRows * kColumns * 4;
  const Tensor noise = at::randint(INT32_MAX, {5 << 20}, at::TensorOptions(at::kInt));
  auto address = reinterpret_cast<uintptr_t>(noise.mutable_data_ptr());
  const void* data = reinterpret_cast<const void*>((address + 4095) / 4096 * 4096);
  for (auto _ : state) {
    const int file = ::open("bench_direct.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0644);
    for (size_t at = 0; at < total; at += block) {
      TI_CHECK(::pwrite(file, data, block, static_cast<off_t>(at)) == static_cast<ssize_t>(block), "{}",
               strerror(errno));
    }
    ::fsync(file);
    ::close(file);
    state.PauseTiming();
    std::filesystem::remove("bench_direct.tmp");
    ::sync();
    state.ResumeTiming();
  }
  set_rate(state);
}
BENCHMARK(bench_direct_write)->UseRealTime()->Unit(benchmark::kMillisecond);

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
