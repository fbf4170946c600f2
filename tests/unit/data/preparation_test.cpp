// Tokenising a data set once: the same bytes for any number of threads and after any stop.
#include "titanium/data/preparation.h"

#include "tests/support/data_files.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

constexpr int64_t kShardRecords = 500;

using Files = std::map<std::string, std::string>;  // content by name

Files shards_of(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".")) files[name] = read_file(entry.path(), "shard");
  }
  return files;
}

std::vector<std::vector<int32_t>> documents_of(const fs::path& folder) {
  RecordSource source(folder, {});
  std::vector<std::vector<int32_t>> documents;
  for (int64_t i = 0; const auto record = source.read(i); ++i) documents.push_back(document_tokens(*record));
  return documents;
}

class PreparationTest : public ::testing::Test {
 protected:
  // About 4 MiB of lines, so that there are four parts, one of which has most of the records.
  void SetUp() override {
    documents_ = make_documents(9000);
    for (size_t i = 0; i < 60; ++i) documents_.insert(documents_.begin() + 3000, std::string(50'000, 'x'));
    const auto half = documents_.begin() + std::ssize(documents_) / 2;
    folder_.write("lines/a.jsonl", to_json_lines({documents_.begin(), half}));
    folder_.write("lines/b.jsonl", to_json_lines({half, documents_.end()}));
    folder_.write("gzip/a.jsonl.gz", gzip(to_json_lines(documents_)));
    for (size_t i = 0; i < documents_.size(); i += 45) {
      const auto begin = documents_.begin() + static_cast<ptrdiff_t>(i);
      const auto end = documents_.begin() + std::min(std::ssize(documents_), static_cast<ptrdiff_t>(i + 45));
      folder_.write(fmt::format("many/{:05}.jsonl", i), to_json_lines({begin, end}));
    }
  }

  Preparation preparation(const std::string& data, const std::string& out, int64_t threads) const {
    return {.path = folder_.path() / data,
            .out = folder_.path() / out,
            .tokenizer = "bytes",
            .vocab_size = 300,
            .threads = threads,
            .shard_records = kShardRecords};
  }
  PreparedCounts make(const Preparation& what, const Encoder& encoder = encode_bytes) {
    return prepare(what, encoder, [](int64_t, int64_t) {});
  }

  TemporaryFolder folder_;
  std::vector<std::string> documents_;
};

TEST_F(PreparationTest, ShardsAreTheSameForAnyNumberOfThreadsAndHaveTheDocumentsInTheirOrder) {
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& document : documents_) expected.push_back(encode_bytes(document));
  for (const std::string data : {"lines", "gzip", "many"}) {
    const PreparedCounts counts = make(preparation(data, data + "1", 1));
    EXPECT_EQ(counts.documents, std::ssize(documents_));
    EXPECT_TRUE(documents_of(folder_.path() / (data + "1")) == expected) << data;
    const Files alone = shards_of(folder_.path() / (data + "1"));
    EXPECT_EQ(std::ssize(alone), 2 * counts.shards);
    for (const int64_t threads : {2, 7}) {
      const std::string out = fmt::format("{}{}", data, threads);
      make(preparation(data, out, threads));
      EXPECT_TRUE(shards_of(folder_.path() / out) == alone) << out;
    }
  }
}

TEST_F(PreparationTest, AStoppedPreparationGoesOnAndDoesNotReadEndedPartsAgain) {
  make(preparation("lines", "whole", 1));
  std::atomic<int64_t> encoded = 0;
  std::atomic<int64_t> most = 5000;
  const Encoder stopping = [&](std::string_view text) {
    TI_CHECK(++encoded <= most, "stopped");
    return encode_bytes(text);
  };
  EXPECT_TRUE(error_of([&] { make(preparation("lines", "parts", 3), stopping); }).ends_with(": stopped"));
  EXPECT_LT(shards_of(folder_.path() / "parts").size(), shards_of(folder_.path() / "whole").size());
  encoded = 0;
  most = std::ssize(documents_);
  const PreparedCounts rest = make(preparation("lines", "parts", 2), stopping);
  EXPECT_TRUE(shards_of(folder_.path() / "parts") == shards_of(folder_.path() / "whole"));
  EXPECT_GT(rest.kept_shards, 0);
  EXPECT_EQ(rest.documents, encoded);
  EXPECT_LT(rest.documents, std::ssize(documents_));
  most = 0;
  encoded = 0;
  EXPECT_EQ(make(preparation("lines", "parts", 2), stopping).kept_shards, rest.shards);
  fs::remove(folder_.path() / "parts" / "00001-00000.ds");
  most = kShardRecords;
  EXPECT_EQ(make(preparation("lines", "parts", 2), stopping).kept_shards, rest.shards - 1);
  EXPECT_TRUE(shards_of(folder_.path() / "parts") == shards_of(folder_.path() / "whole"));
}

TEST_F(PreparationTest, ProgressBeginsBeforeAnythingIsReadAndTellsBytes) {
  for (const std::string data : {"lines", "gzip"}) {
    std::vector<std::pair<int64_t, int64_t>> told;
    std::atomic<int64_t> encoded = 0;
    const Encoder counting = [&](std::string_view text) {
      ++encoded;
      return encode_bytes(text);
    };
    prepare(preparation(data, "told_" + data, 1), counting, [&](int64_t done, int64_t total) {
      if (told.empty()) {
        EXPECT_EQ(encoded, 0);
      }
      told.emplace_back(done, total);
    });
    int64_t bytes = 0;
    for (const SourceFile& file : find_source_files(folder_.path() / data, false)) bytes += file.size;
    EXPECT_EQ(told.front(), std::pair(int64_t{0}, bytes));
    EXPECT_EQ(told.back(), std::pair(bytes, bytes));
    EXPECT_TRUE(std::ranges::is_sorted(told));
    EXPECT_GE(told.size(), 4U);
  }
}

TEST_F(PreparationTest, OtherOptionsThanThoseOfTheShardsThatAreThereAreRefused) {
  make(preparation("lines", "out", 1));
  Preparation other = preparation("lines", "out", 1);
  other.tokenizer = "words";
  EXPECT_EQ(error_of([&] { make(other); }),
            (folder_.path() / "out").string() +
                " holds shards of other data, another tokenizer or other options. Name another folder or empty this "
                "one.");
  const fs::path empty = folder_.write("none/a.jsonl", "\n\n");
  EXPECT_EQ(error_of([&] { make(preparation("none", "nothing", 2)); }),
            "Data at " + empty.parent_path().string() + " has no records. Name a file or folder that has some.");
}

}  // namespace
}  // namespace titanium::data::testing
