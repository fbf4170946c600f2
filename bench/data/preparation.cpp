// bench_preparation TOKENIZER FOLDER MEGABYTES THREADS...: writes lines of JSON compressed with gzip, MEGABYTES of them
// in 32 files, into FOLDER once, prepares them with each number of threads, and prints seconds and MB/s of the lines.
#include "titanium/data/preparation.h"

#include <fmt/format.h>
#include <zlib.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "titanium/data/tokenizer.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr int kFiles = 32;

std::string random_words(std::mt19937_64& random) {
  std::string text;
  for (uint64_t words = 40 + random() % 800; words > 0; --words) {
    for (uint64_t letters = 2 + random() % 8; letters > 0; --letters) text += static_cast<char>('a' + random() % 26);
    text += ' ';
  }
  return text;
}

void write_lines(const fs::path& path, int64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> some;
  for (int i = 0; i < 500; ++i) some.push_back(random_words(random));
  gzFile file = gzopen(path.c_str(), "wb3");
  for (int64_t written = 0; written < bytes;) {
    const std::string line = fmt::format("{{\"text\":\"{} {}\"}}\n", random(), some[random() % some.size()]);
    written += gzwrite(file, line.data(), static_cast<unsigned>(line.size()));
  }
  gzclose(file);
}

void measure(const Tokenizer& tokenizer, const fs::path& data, const fs::path& out, int64_t megabytes,
             int64_t threads) {
  fs::remove_all(out);
  const auto begin = std::chrono::steady_clock::now();
  const PreparedCounts counts = prepare(
      {.path = data, .out = out, .tokenizer = "bench", .vocab_size = tokenizer.vocab_size(), .threads = threads},
      [&](std::string_view text) { return tokenizer.encode(text, true, true); }, [](int64_t, int64_t) {});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} threads: {:.2f} s, {:.0f} MB/s, {} tokens\n", threads, seconds,
             static_cast<double>(megabytes) / seconds, counts.tokens);
}

}  // namespace
}  // namespace titanium::data

int main(int argc, char** argv) {
  using namespace titanium::data;
  if (argc < 5) return 2;
  const fs::path folder(argv[2]);
  const int64_t megabytes = std::atoll(argv[3]);
  fs::create_directories(folder / "data");
  for (int i = 0; i < kFiles; ++i) {
    const fs::path path = folder / "data" / fmt::format("{:02}.jsonl.gz", i);
    if (!fs::exists(path)) write_lines(path, megabytes * 1'000'000 / kFiles, static_cast<uint64_t>(i));
  }
  const Tokenizer tokenizer = Tokenizer::load(argv[1]);
  for (int i = 4; i < argc; ++i) measure(tokenizer, folder / "data", folder / "out", megabytes, std::atoll(argv[i]));
}
