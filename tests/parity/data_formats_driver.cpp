// data_formats_driver PATH FIELD: the samples of a data set, 20 steps on one reader, 20 more on two that go on after
// it, and 20 more on four. Each line is one sample in the global order.
// data_formats_driver fuzz PATH FIELD ROUNDS SEED: damages the file in a copy beside it that often and reads it; prints
// how many were read and how many refused.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <fstream>

#include "tests/support/damaged_bytes.h"
#include "titanium/data/document.h"
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

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_read(const std::filesystem::path& path, const std::string& field) {
  try {
    RecordSource source(path, {.reading = {.max_record_bytes = 1 << 20, .text_field = field}});
    for (int64_t i = 0; i < 100'000; ++i) {
      const auto record = source.read(i);
      if (!record) break;
      try {
        const size_t size =
            has_tokens(*record) ? document_tokens(*record).size() : document_text(*record, field).size();
        if (size > size_t{1} << 20) throw std::logic_error("a record is larger than the limit");
      } catch (const BadRecord&) {  // the next one may be good
      }
    }
    return true;
  } catch (const Error& error) {
    return false;
  }
}

void fuzz(const std::string& path, const std::string& field, int64_t rounds, uint64_t seed) {
  const std::string whole = content_of(path);
  const std::filesystem::path given(path), copy = given.parent_path() / ("damaged" + given.extension().string());
  std::mt19937_64 random(seed);
  int64_t good = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    std::string bytes = whole;
    if (random() % 2 == 0) {
      bytes = test::damaged(std::move(bytes), random);
    } else {  // footers are at the end
      const size_t tail = std::min<size_t>(bytes.size(), 400);
      bytes = bytes.substr(0, bytes.size() - tail) + test::damaged(bytes.substr(bytes.size() - tail), random);
    }
    std::ofstream(copy, std::ios::binary) << bytes;
    good += is_read(copy, field) ? 1 : 0;
  }
  fmt::print("{} {}\n", good, rounds - good);
}

}  // namespace
}  // namespace titanium::data

int main(int argc, char** argv) {
  try {
    if (argc == 6) titanium::data::fuzz(argv[2], argv[3], std::stoll(argv[4]), std::stoull(argv[5]));
    if (argc == 3) titanium::data::run(argv[1], argv[2]);
    return argc == 3 || argc == 6 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
