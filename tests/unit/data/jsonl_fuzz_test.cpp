// Random damage to data files: always samples or a sentence, never a crash, a hang or a huge allocation.
#include <sys/resource.h>

#include "tests/support/data_files.h"
#include "tests/support/fuzz.h"

namespace titanium::data::testing {
namespace {

int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

std::string mutate(std::string bytes, std::mt19937_64& random) {
  static constexpr std::string_view kPieces[] = {
      "\n",      "\r\n",         "\"", "{",    "}", "[",     "\\u",
      "\\ud800", "\xff",         "\0", "text", ":", "1e999", "{\"text\":\"x\"}\n",
      "[[[[",    "\xef\xbb\xbf", ","};
  const size_t edits = 1 + random() % 8;
  for (size_t i = 0; i < edits && !bytes.empty(); ++i) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, 1 + random() % 40);
        break;
      case 2:
        bytes.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 200));
        break;
      default:
        if (random() % 8 == 0) bytes.resize(at);
    }
  }
  return bytes;
}

// Reads `path` to its end and once around; returns how it went.
bool reads_well(const fs::path& path, std::mt19937_64& random) {
  try {
    Loader loader({.name = "fuzz",
                   .path = path,
                   .skip_bad_records = random() % 4 != 0,
                   .streams = 4,
                   .max_record_bytes = 1 << 20},
                  encode_bytes,
                  {.batch = 4, .packing = {.seq_len = 32, .infinite = random() % 2 == 0}, .num_workers = 2});
    for (int i = 0; i < 40; ++i)
      if (!loader.next()) break;
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return false;
  }
}

void fuzz(const std::string& name, const std::function<std::string(std::mt19937_64&)>& make) {
  const TemporaryFolder folder;
  const int64_t memory_before = peak_memory_bytes();
  int64_t good = 0;
  int64_t refused = 0;
  test::fuzz(300, [&](std::mt19937_64& random) {
    const auto path = folder.write(name, make(random));
    (reads_well(path, random) ? good : refused) += 1;
  });
  EXPECT_GT(good, 0);
  EXPECT_GT(refused, 0);
  EXPECT_LT(peak_memory_bytes() - memory_before, int64_t{512} << 20);
}

TEST(JsonLinesFuzz, PlainFiles) {
  const std::string lines = to_json_lines(make_documents(60));
  fuzz("data.jsonl", [&](auto& random) { return mutate(lines, random); });
}

TEST(JsonLinesFuzz, DamagedTextInsideArchives) {
  const std::string lines = to_json_lines(make_documents(60));
  fuzz("data.jsonl.zst", [&](auto& random) { return zstd(mutate(lines, random)); });
}

TEST(JsonLinesFuzz, DamagedGzip) {
  const std::string whole = gzip(to_json_lines(make_documents(60)));
  fuzz("data.jsonl.gz", [&](auto& random) { return random() % 20 == 0 ? whole : mutate(whole, random); });
}

TEST(JsonLinesFuzz, DamagedZstd) {
  const std::string whole = zstd(to_json_lines(make_documents(60)));
  fuzz("data.jsonl.zst", [&](auto& random) { return random() % 20 == 0 ? whole : mutate(whole, random); });
}

TEST(JsonLinesFuzz, DamagedStates) {
  const TemporaryFolder folder;
  const auto path = folder.write("data.jsonl", to_json_lines(make_documents(60)));
  Loader loader({.name = "fuzz", .path = path, .streams = 4}, encode_bytes, {.batch = 4, .packing = {.seq_len = 32}});
  read_batches(loader, 10);
  const std::string whole = to_json(loader.state());
  test::fuzz(3000, [&](std::mt19937_64& random) {
    try {
      loader.load(loader_state_from_json(mutate(whole, random)));
      read_batches(loader, 5);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  });
}

TEST(JsonLinesFuzz, DeepNestingAndEndlessArchivesStaySmall) {
  const TemporaryFolder folder;
  std::mt19937_64 random(1);
  EXPECT_FALSE(reads_well(folder.write("deep.jsonl", "{\"a\":" + std::string(900'000, '[') + "\n"), random) &&
               reads_well(folder.write("deep.jsonl", std::string(900'000, '{')), random));
  const int64_t memory_before = peak_memory_bytes();
  const auto bomb = folder.write("bomb.jsonl.zst", zstd(std::string(200'000'000, 'x')));
  const int64_t memory_of_making = peak_memory_bytes();
  EXPECT_FALSE(reads_well(bomb, random));
  EXPECT_LT(peak_memory_bytes() - std::max(memory_before, memory_of_making), 64 << 20);
}

}  // namespace
}  // namespace titanium::data::testing
