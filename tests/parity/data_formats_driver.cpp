// data_formats_driver PATH FIELD: the samples of a data set, 20 steps on one reader, 20 more on two that go on after
// it, and 20 more on four. Each line is one sample in the global order.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>

#include "titanium/data/loader.h"

namespace titanium::data {
namespace {

std::vector<int32_t> encode_bytes(std::string_view text) {
  std::vector<int32_t> tokens = {256};
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

void run(const std::string& path, const std::string& field) {
  std::optional<LoaderState> saved;
  for (const int64_t ranks : {1, 2, 4}) {
    std::vector<std::vector<std::string>> lines(static_cast<size_t>(ranks));
    std::vector<LoaderState> states;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Loader loader({.name = "test",
                     .path = path,
                     .text_field = field,
                     .streams = 16,
                     .rank = rank,
                     .ranks = ranks,
                     .cache_bytes = 1 << 18},
                    encode_bytes, {.batch = 8 / ranks, .packing = {.seq_len = 100}, .num_workers = 2});
      if (saved) loader.load(*saved);
      for (int step = 0; step < 20; ++step) {
        const Batch batch = loader.next().value();
        for (int64_t row = 0; row < batch.batch; ++row)
          lines[static_cast<size_t>(rank)].push_back(fmt::format(
              "{}", fmt::join(batch.inputs.begin() + row * 100, batch.inputs.begin() + row * 100 + 100, " ")));
      }
      states.push_back(loader_state_from_json(to_json(loader.state())));
    }
    saved = merge(states);
    for (size_t i = 0; i < lines[0].size(); ++i)
      for (const auto& rank : lines) std::puts(rank[i].c_str());
  }
}

}  // namespace
}  // namespace titanium::data

int main(int argc, char** argv) {
  try {
    if (argc == 3) titanium::data::run(argv[1], argv[2]);
    return argc == 3 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
