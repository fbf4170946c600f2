// What the loader costs at scale, one line of JSON each:
//   bench_scale start PATH          seconds from nothing to the first batch of a folder
//   bench_scale memory PATH N       peak memory of a mix of N sources that all read PATH, over 200 batches
//   bench_scale resume PATH         seconds from a position after 10^9 samples to the first batch, with a shuffle
// Data is dealt to streams as a run without options deals it. bench/data_scale.py makes the files and compares.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <string_view>

#include "titanium/data/loader.h"

namespace titanium::data {
namespace {

std::vector<int32_t> encode(std::string_view text) { return {text.begin(), text.end()}; }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") return status >> word ? std::stoll(word) * 1024 : 0;
  }
  return 0;
}

void start(const std::string& path) {
  const auto begin = std::chrono::steady_clock::now();
  Loader loader({.name = "bench", .path = path, .striping = StripingChoice::kAuto}, encode,
                {.batch = 8, .packing = {.seq_len = 512}});
  loader.next();
  fmt::print(R"({{"seconds": {:.3f}, "processor_seconds": {:.3f}, "lanes": {}}})"
             "\n",
             seconds_since(begin), static_cast<double>(std::clock()) / CLOCKS_PER_SEC,
             loader.state().sources[0].striping.lanes);
}

void memory(const std::string& path, int64_t count) {
  std::vector<MixEntry> sources;
  MixturePiece piece;
  for (int64_t i = 0; i < count; ++i) {  // as train/task/text_data.cpp shares the cache
    sources.push_back({.corpus = {.name = fmt::format("{}", i),
                                  .path = path,
                                  .cache_bytes = (size_t{256} << 20) / static_cast<size_t>(count),
                                  .max_readers = 1,
                                  .in_mix = true,
                                  .striping = StripingChoice::kAuto,
                                  .most_lanes = StripingLimits{}.lanes / count}});
    piece.weights.push_back(static_cast<double>(1 + i % 7));
  }
  Loader loader(std::move(sources), {piece}, encode, {.batch = 64, .packing = {.seq_len = 2048}, .num_workers = 2});
  for (int i = 0; i < 200; ++i) loader.next();
  fmt::print(R"({{"peak_bytes": {}, "state_bytes": {}}})"
             "\n",
             peak_memory(), to_json(loader.state()).size());
}

void resume(const std::string& path) {
  constexpr int64_t kSamples = 1'000'000'000;
  const CorpusOptions corpus{.name = "bench", .path = path, .shuffle = true, .striping = StripingChoice::kAuto};
  const LoaderOptions options{.batch = 8, .packing = {.seq_len = 512}};
  LoaderState state = Loader(corpus, encode, options).state();
  for (int64_t stream = 0; stream < state.streams; ++stream) {
    state.turns[stream] = kSamples / state.streams;
    state.sources[0].positions[stream] = {.epoch = 4'000 + stream % 3,
                                          .samples = kSamples / state.streams,
                                          .record = stream + state.streams * (stream % 5),
                                          .token = 17};
  }
  const std::string saved = to_json(state);
  const auto begin = std::chrono::steady_clock::now();
  Loader loader(corpus, encode, options);
  loader.load(loader_state_from_json(saved));
  loader.next();
  fmt::print(R"({{"seconds": {:.3f}}})"
             "\n",
             seconds_since(begin));
}

}  // namespace
}  // namespace titanium::data

int main(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[1] : "";
  if (mode == "start") titanium::data::start(argv[2]);
  if (mode == "memory" && argc > 3) titanium::data::memory(argv[2], std::stoll(argv[3]));
  if (mode == "resume") titanium::data::resume(argv[2]);
}
