#include "tests/support/data_files.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

std::vector<std::string> read_all(RecordSource& source) {
  std::vector<std::string> texts;
  for (int64_t i = 0; auto record = source.read(i); ++i) texts.push_back(document_text(*record, "text"));
  return texts;
}

std::vector<std::string> read_all(const fs::path& path, const RecordSourceOptions& options = {}) {
  RecordSource source(path, options);
  return read_all(source);
}

std::string read_error(const fs::path& path, const RecordSourceOptions& options = {}) {
  return error_of([&] { read_all(path, options); });
}

TEST(Source, GzipAndZstdEqualPlain) {
  const TemporaryFolder folder;
  const auto documents = make_documents(5000);
  const std::string lines = to_json_lines(documents);
  ASSERT_GT(lines.size(), size_t{256} << 10) << "the file must be longer than one read";
  EXPECT_EQ(read_all(folder.write("plain.jsonl", lines)), documents);
  EXPECT_EQ(read_all(folder.write("a.jsonl.gz", gzip(lines))), documents);
  EXPECT_EQ(read_all(folder.write("a.jsonl.zst", zstd(lines))), documents);
}

TEST(Source, SeveralMembersAndFramesAreOneFile) {
  const TemporaryFolder folder;
  const auto documents = make_documents(100);
  const std::string lines = to_json_lines(documents);
  const std::string head = lines.substr(0, lines.size() / 3);  // cut inside a line
  const std::string tail = lines.substr(head.size());
  EXPECT_EQ(read_all(folder.write("a.jsonl.gz", gzip(head) + gzip(tail))), documents);
  EXPECT_EQ(read_all(folder.write("a.jsonl.zst", zstd(head) + zstd(tail))), documents);
}

TEST(Source, FolderIsReadInDepthInOrderOfNames) {
  const TemporaryFolder folder;
  folder.write("b/2.jsonl.zst", zstd(R"({"text":"four"})"));
  folder.write("b/1.txt", "three\nis a document of two lines");
  folder.write("a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}");
  folder.write("c.json.gz", gzip(R"({"text":"five"})"));
  folder.write("README.md", "not data");
  folder.write(".cache/x.jsonl", "hidden");
  EXPECT_EQ(read_all(folder.path()),
            (std::vector<std::string>{"one", "two", "three\nis a document of two lines", "four", "five"}));
}

TEST(Source, LineEndsBlankLinesAndMissingLastNewlineDoNotMatter) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.jsonl", "\n{\"text\":\"a\"}\r\n  \r\n\n{\"text\":\"b\"}\n\t\n{\"text\":\"c\"}");
  EXPECT_EQ(read_all(path), (std::vector<std::string>{"a", "b", "c"}));
  RecordSource source(path, {});
  EXPECT_EQ(source.read(0)->line, 2);
  EXPECT_EQ(source.read(2)->line, 7);
}

TEST(Source, VeryLongLinesAreRead) {
  const TemporaryFolder folder;
  std::vector<std::string> documents = {"short", std::string(9'000'000, 'x'), "end"};
  for (const auto& path :
       {folder.write("a.jsonl", to_json_lines(documents)), folder.write("b.jsonl.gz", gzip(to_json_lines(documents)))})
    EXPECT_EQ(read_all(path), documents);
}

TEST(Source, RecordsAreFoundInAnyOrderWithASmallCache) {
  const TemporaryFolder folder;
  const auto documents = make_documents(9000);
  const auto half = documents.begin() + 4500;
  folder.write("1.jsonl", to_json_lines({documents.begin(), half}));
  folder.write("2.jsonl.gz", gzip(to_json_lines({half, documents.end()})));
  RecordSource source(folder.path(), {.cache_bytes = 1 << 18});
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    const auto record = static_cast<int64_t>(random() % documents.size());
    EXPECT_EQ(document_text(*source.read(record), "text"), documents[static_cast<size_t>(record)]);
  }
  EXPECT_FALSE(source.read(9000).has_value());
  EXPECT_EQ(source.count_up_to(100'000), 9000);
}

TEST(Source, RankReadsEveryNthRecordFromAnyAnchor) {
  const TemporaryFolder folder;
  const auto documents = make_documents(5000);
  const auto path = folder.write("a.jsonl", to_json_lines(documents));
  RecordSource first(path, {.reading = {.ownership = {3, 8}}});
  const Anchor anchor = first.read(4003)->entrance();
  EXPECT_GT(anchor.offset, 0);
  RecordSource second(path, {.reading = {.ownership = {1, 4}}});
  second.add_anchor(anchor);
  for (const int64_t record : {4001, 4997, 1, 2049})
    EXPECT_EQ(document_text(*second.read(record), "text"), documents[static_cast<size_t>(record)]);
}

TEST(Source, AnchorThatIsNoPlaceIsRefused) {
  const TemporaryFolder folder;
  RecordSource source(folder.write("a.jsonl", to_json_lines(make_documents(10))), {});
  for (const Anchor& anchor : {Anchor{.record = 1, .offset = 7}, Anchor{.record = 1, .file = 1}, Anchor{.record = -1},
                               Anchor{.record = 5, .offset = 1 << 30}})
    EXPECT_NE(error_of([&] { source.add_anchor(anchor); }).find("is not the beginning of a record"), std::string::npos);
}

TEST(Source, MissingPathHasASentence) {
  EXPECT_EQ(read_error("/no/such/data"), "Data path /no/such/data does not exist. Check training.dataset_path.");
}

TEST(Source, FolderWithoutDataHasASentence) {
  const TemporaryFolder folder;
  folder.write("notes.md", "x");
  EXPECT_EQ(
      read_error(folder.path()),
      fmt::format("Data folder {} has no data files. Expected are .jsonl, .json, .ndjson, .txt or .tar files, "
                  "plain or with .gz or .zst, .parquet or .arrow files, or tokens: .idx with .bin, .ds, .mds, .npy "
                  "or .bin.",
                  folder.path().string()));
}

TEST(Source, EmptyFileHasASentenceAndCanBeLeftOut) {
  const TemporaryFolder folder;
  const auto empty = folder.write("a.jsonl.gz", "");
  folder.write("b.jsonl", R"({"text":"b"})");
  EXPECT_EQ(read_error(folder.path()),
            fmt::format("Data file {} is empty. Remove it, or set training.skip_bad_records to leave such files out.",
                        empty.string()));
  EXPECT_EQ(read_all(folder.path(), {.allow_empty_files = true}), std::vector<std::string>{"b"});
}

TEST(Source, UnreadablePathAndFileHaveASentence) {
  const TemporaryFolder folder;
  fs::create_symlink("loop.jsonl", folder.path() / "loop.jsonl");  // fails for root too
  EXPECT_EQ(read_error(folder.path() / "loop.jsonl"),
            fmt::format("Data path {}/loop.jsonl cannot be read: Too many levels of symbolic links. Check the path and "
                        "its permissions.",
                        folder.path().string()));
  EXPECT_EQ(read_error(folder.path()),
            fmt::format("Data file {}/loop.jsonl cannot be read: Too many levels of symbolic links. Check the file and "
                        "its permissions.",
                        folder.path().string()));
}

TEST(Source, FileThatIsGoneWhenItIsNeededHasASentence) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.jsonl", R"({"text":"a"})");
  RecordSource source(path, {});
  fs::remove(path);
  EXPECT_EQ(error_of([&] { source.read(0); }),
            fmt::format("Data file {} cannot be opened: No such file or directory. Check the path and its permissions.",
                        path.string()));
}

TEST(Source, TruncatedArchivesHaveASentenceAtEveryLength) {
  const TemporaryFolder folder;
  const std::string lines = to_json_lines(make_documents(50));
  for (const auto& [name, whole] : {std::pair{"a.jsonl.gz", gzip(lines)}, {"a.jsonl.zst", zstd(lines)}}) {
    for (const size_t length : {size_t{3}, whole.size() / 2, whole.size() - 1}) {
      const auto path = folder.write(name, whole.substr(0, length));
      EXPECT_EQ(read_error(path),
                fmt::format("Data file {} is truncated: its compressed data ends too early. Fetch or make it again.",
                            path.string()))
          << length;
    }
  }
}

TEST(Source, DamagedArchivesHaveASentence) {
  const TemporaryFolder folder;
  const auto gz = folder.write("a.jsonl.gz", "this is not gzip data");
  EXPECT_EQ(read_error(gz),
            fmt::format("Data file {} is not valid gzip data (incorrect header check). Fetch or make it "
                        "again.",
                        gz.string()));
  const auto zst = folder.write("a.jsonl.zst", "this is not zstd data");
  EXPECT_EQ(read_error(zst),
            fmt::format("Data file {} is not valid zstd data (Unknown frame descriptor). Fetch or make "
                        "it again.",
                        zst.string()));
  std::string flipped = gzip(to_json_lines(make_documents(50)));
  flipped[flipped.size() / 2] ^= 0x55;
  EXPECT_NE(read_error(folder.write("b.jsonl.gz", flipped)), "");
}

TEST(Source, RecordBeyondTheLimitHasASentence) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.jsonl.gz", gzip("{\"text\":\"a\"}\n" + std::string(3'000'000, 'x')));
  EXPECT_EQ(
      read_error(path, {.reading = {.max_record_bytes = 1'000'000}}),
      fmt::format("{}:2: this record is longer than 1000000 bytes, the most that one document may have. Split it.",
                  path.string()));
}

TEST(Source, EveryKindOfBadRecordNamesFileLineAndRemedy) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> problems = {
      {R"({"text": "a)", "this record is not valid JSON (at byte 12)"},
      {"{\"text\": \"\xff\"}", "this record is not valid JSON (at byte 11)"},
      {R"({"title": "a", "url": 3})", "this record has no field \"text\" (its fields: title, url)"},
      {R"({})", "this record has no field \"text\" (its fields: none)"},
      {R"({"a": {"text": "inner"}})", "this record has no field \"text\" (its fields: a)"},
      {R"({"text": 7})", "field \"text\" is a number, but must be a string"},
      {R"({"text": null})", "field \"text\" is null, but must be a string"},
      {R"({"text": ["a"]})", "field \"text\" is an array, but must be a string"},
      {R"({"text": {"text": "a"}})", "field \"text\" is an object, but must be a string"},
      {R"(["text", "a"])", "this record is an array, but must be a JSON object"},
      {R"("text")", "this record is a string, but must be a JSON object"}};
  for (const auto& [line, problem] : problems) {
    const auto path = folder.write("a.jsonl", "{\"text\":\"good\"}\n\n" + line + "\n");
    EXPECT_EQ(read_error(path), fmt::format("{}:3: {}. Repair or remove the line, or set training.skip_bad_records to "
                                            "leave such records out.",
                                            path.string(), problem));
  }
}

TEST(Source, AnotherTextFieldCanBeNamed) {
  const TemporaryFolder folder;
  RecordSource source(folder.write("a.jsonl", R"({"text": 1, "content": "first", "content": "h\u00e9\n"})"), {});
  EXPECT_EQ(document_text(*source.read(0), "content"), "hé\n");
}

}  // namespace
}  // namespace titanium::data::testing
