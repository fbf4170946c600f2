// Samples and megabytes per second of the loader with an encoder that costs next to nothing (bytes are tokens), and how
// long start and resume take: what reading, decompression, JSON, packing and hand-over cost without a tokenizer.
#include "titanium/data/loader.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "titanium/base/files/file.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileBytes = int64_t{128} << 20;
constexpr int64_t kSeqLen = 2048;
constexpr int64_t kBatch = 8;

std::string make_lines() {
  std::string lines;
  uint64_t state = 1;
  const auto random = [&] { return (state = state * 6364136223846793005 + 1442695040888963407) >> 33; };
  while (static_cast<int64_t>(lines.size()) < kFileBytes) {
    lines += R"({"url":"https://example.org","text":")";
    for (uint64_t words = 20 + random() % 600; words > 0; --words) lines += fmt::format("{:x} ", random() % 100'000);
    lines += "\"}\n";
  }
  return lines;
}

// The same 128 MiB of JSON lines as plain, gzip and zstd files, made once and removed at the end.
class Files {
 public:
  Files() : folder_(fs::temp_directory_path() / fmt::format("titanium_bench_{}", ::getpid())) {
    const std::string lines = make_lines();
    write_file_atomically(path("jsonl"), lines);
    gzFile gz = gzopen(path("jsonl.gz").c_str(), "wb1");
    gzwrite(gz, lines.data(), static_cast<unsigned>(lines.size()));
    gzclose(gz);
    std::string packed(ZSTD_compressBound(lines.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), lines.data(), lines.size(), 3));
    write_file_atomically(path("jsonl.zst"), packed);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() { fs::remove_all(folder_); }

  fs::path path(const std::string& extension) const { return folder_ / ("data." + extension); }

 private:
  fs::path folder_;
};

std::unique_ptr<Loader> make_loader(const std::string& extension, int64_t num_workers) {
  static const Files files;
  return std::make_unique<Loader>(
      CorpusOptions{.name = "bench", .path = files.path(extension)},
      [](std::string_view text) { return std::vector<int32_t>(text.begin(), text.end()); },
      LoaderOptions{.batch = kBatch, .packing = {.seq_len = kSeqLen}, .num_workers = num_workers});
}

void next(benchmark::State& state, const char* extension) {
  const auto loader = make_loader(extension, state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(loader->next());
  state.SetItemsProcessed(state.iterations() * kBatch);
  state.SetBytesProcessed(state.iterations() * kBatch * (kSeqLen + 1));
}

void start(benchmark::State& state, const char* extension) {
  for (auto _ : state) make_loader(extension, 1)->next();
}

// Resume in the middle of the file. Plain files are entered there, compressed ones are decoded up to there.
void resume(benchmark::State& state, const char* extension) {
  const auto loader = make_loader(extension, 2);
  for (int64_t i = 0; i < kFileBytes / 2 / (kBatch * kSeqLen); ++i) loader->next();
  const LoaderState saved = loader->state();
  for (auto _ : state) {
    const auto resumed = make_loader(extension, 1);
    resumed->load(saved);
    benchmark::DoNotOptimize(resumed->next());
  }
}

BENCHMARK_CAPTURE(next, plain, "jsonl")->Arg(1)->Arg(2)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK_CAPTURE(next, gzip, "jsonl.gz")->Arg(1)->Arg(2)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK_CAPTURE(next, zstd, "jsonl.zst")->Arg(1)->Arg(2)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK_CAPTURE(start, plain, "jsonl")->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(start, gzip, "jsonl.gz")->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resume, plain, "jsonl")->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resume, gzip, "jsonl.gz")->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resume, zstd, "jsonl.zst")->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace titanium::data

BENCHMARK_MAIN();
