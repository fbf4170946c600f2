// data_formats_driver PATH FIELD
//   the samples of a data set, 20 steps on one reader, 20 more on two that go on after it, and 20 more on four. Each
//   line is one sample in the global order.
// data_formats_driver blocks PATH FIELD RANKS
//   the same, dealt by blocks; the 60 steps are shared out among the numbers of readers in RANKS, as in 124, or 1 for a
//   run without a stop; says into how many lanes.
// data_formats_driver mix STRIPING SHUFFLE RANKS STEPS PATH PATH ...
//   the samples of a mix of these, STRIPING as in training.data_striping, SHUFFLE 0 or 1, RANKS as above for STEPS
//   steps. With a stop, readers give their memory back between reads.
// data_formats_driver share PATH FIELD RANK RANKS BYTES
//   one reader of that many reads an epoch, dealt by blocks of that size or, with 0, by records; the number of its
//   samples, its lanes, and the bytes that the process has read. The same with `shuffled` instead of `share`, or with
//   `resting`, as one of so many sources that readers give their memory back between reads.
// data_formats_driver pieces PATH FIELD
//   the records up to which each block of one file goes, on one line for a reader that stays open and on another for
//   one that gives its memory back after each block.
// data_formats_driver fuzz PATH FIELD ROUNDS SEED
//   damages the file in a copy beside it that often and reads it; prints how many were read and how many refused, and
//   the most memory that the process has had, in bytes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>

#include "tests/support/bytes_read.h"
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

CorpusOptions corpus_of(const std::string& path, const std::string& field, StripingChoice striping) {
  return {.name = "test",
          .path = path,
          .text_field = field,
          .streams = 16,
          .cache_bytes = 1 << 18,
          .striping = striping,
          .block_bytes = 1 << 14};
}

using Make = std::function<std::unique_ptr<Loader>(int64_t rank, int64_t ranks, const LoaderOptions& options)>;

constexpr size_t kSteps = 60;  // of all layouts together

// Prints the samples; gives the last state.
LoaderState run(const Make& make, const std::vector<int64_t>& layouts, size_t steps) {
  std::optional<LoaderState> saved;
  for (const int64_t ranks : layouts) {
    std::vector<std::vector<std::string>> lines(static_cast<size_t>(ranks));
    std::vector<LoaderState> states;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto loader = make(rank, ranks, {.batch = 8 / ranks, .packing = {.seq_len = 100}, .num_workers = 2});
      if (saved) loader->load(*saved);
      for (size_t step = 0; step < steps / layouts.size(); ++step) {
        const Batch batch = loader->next().value();
        for (int64_t row = 0; row < batch.batch; ++row)
          lines[static_cast<size_t>(rank)].push_back(fmt::format(
              "{}", fmt::join(batch.inputs.begin() + row * 100, batch.inputs.begin() + row * 100 + 100, " ")));
      }
      states.push_back(loader_state_from_json(to_json(loader->state())));
    }
    saved = merge(states);
    for (size_t i = 0; i < lines[0].size(); ++i)
      for (const auto& rank : lines) std::puts(rank[i].c_str());
  }
  return saved.value();
}

void run_one(const std::string& path, const std::string& field, StripingChoice striping,
             const std::vector<int64_t>& layouts) {
  const auto make = [&](int64_t rank, int64_t ranks, const LoaderOptions& options) {
    CorpusOptions corpus = corpus_of(path, field, striping);
    corpus.rank = rank;
    corpus.ranks = ranks;
    return std::make_unique<Loader>(corpus, encode_bytes, options);
  };
  const LoaderState state = run(make, layouts, kSteps);
  if (striping != StripingChoice::kRecords) fmt::print("{} lanes\n", state.sources[0].striping.lanes);
}

void run_mix(const std::vector<std::string>& paths, StripingChoice striping, bool shuffle,
             const std::vector<int64_t>& layouts, size_t steps) {
  const auto make = [&](int64_t rank, int64_t ranks, const LoaderOptions& options) {
    std::vector<MixEntry> entries;
    for (const std::string& path : paths) {
      CorpusOptions corpus = corpus_of(path, "text", striping);
      corpus.name = path;
      corpus.block_bytes = 1 << 10;
      corpus.rank = rank;
      corpus.ranks = ranks;
      corpus.in_mix = true;
      corpus.shuffle = shuffle;
      corpus.shuffle_window = 128;
      if (layouts.size() > 1) corpus.held_bytes = 0;
      entries.push_back({.corpus = corpus});
    }
    const std::vector<MixturePiece> weights = {{.first = 0, .weights = std::vector<double>(paths.size(), 1.0)}};
    return std::make_unique<Loader>(entries, weights, encode_bytes, options);
  };
  run(make, layouts, steps);
}

std::vector<int64_t> layouts_of(const std::string& digits) {
  std::vector<int64_t> layouts;
  for (const char digit : digits) layouts.push_back(digit - '0');
  return layouts;
}

// The words of the command line.
void read_share(const std::vector<std::string>& given) {
  const int64_t block_bytes = std::stoll(given[5]);
  CorpusOptions corpus =
      corpus_of(given[1], given[2], block_bytes > 0 ? StripingChoice::kBlocks : StripingChoice::kRecords);
  corpus.rank = std::stoll(given[3]);
  corpus.ranks = std::stoll(given[4]);
  corpus.block_bytes = block_bytes;
  corpus.shuffle = given[0] == "shuffled";
  if (given[0] == "resting") corpus.held_bytes = 0;
  corpus.cache_bytes = size_t{16} << 20;
  Loader loader(corpus, encode_bytes, {.batch = 1, .packing = {.seq_len = 100, .infinite = false}});
  int64_t samples = 0;
  while (loader.next()) ++samples;
  fmt::print("{} {} {}\n", samples, loader.state().sources[0].striping.lanes, testing::bytes_read());
}

void print_pieces(const std::string& path, const std::string& field) {
  const SourceFile file = find_source_files(path, /*allow_empty_files=*/false).at(0);
  for (const bool rests : {false, true}) {
    const auto reader = open_blocks(file, {}, {.text_field = field});
    std::vector<int64_t> ends;
    while (!reader->at_end()) {
      ends.push_back(reader->next()->end());
      if (rests) reader->settle(0);
    }
    fmt::print("{}\n", fmt::join(ends, " "));
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

int64_t peak_memory() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return int64_t{used.ru_maxrss} << 10;
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
  fmt::print("{} {} {}\n", good, rounds - good, peak_memory());
}

}  // namespace
}  // namespace titanium::data

int main(int argc, char** argv) {
  try {
    using namespace titanium::data;
    const std::vector<std::string> given(argv + 1, argv + argc);
    if (given.size() > 5 && given[0] == "mix") {
      run_mix({given.begin() + 5, given.end()}, striping_choice(given[1]), given[2] == "1", layouts_of(given[3]),
              std::stoull(given[4]));
      return 0;
    }
    if (argc == 7) read_share(given);
    if (argc == 6) fuzz(argv[2], argv[3], std::stoll(argv[4]), std::stoull(argv[5]));
    if (argc == 5) run_one(argv[2], argv[3], StripingChoice::kBlocks, layouts_of(argv[4]));
    if (argc == 4) print_pieces(argv[2], argv[3]);
    if (argc == 3) run_one(argv[1], argv[2], StripingChoice::kRecords, {1, 2, 4});
    return argc >= 3 && argc <= 7 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
