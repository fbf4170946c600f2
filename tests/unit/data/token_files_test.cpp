// Tokens that were made elsewhere, written here byte by byte as their makers define them.
#include <cstring>

#include "tests/support/data_files.h"
#include "tests/support/data_format_bytes.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

using Documents = TokenDocuments;

Documents random_documents(int64_t count, uint64_t seed = 5) {
  std::mt19937_64 random(seed);
  Documents documents;
  for (int64_t i = 0; i < count; ++i) {
    auto& tokens = documents.emplace_back();
    for (size_t length = i % 11 == 3 ? 0 : random() % 90; length > 0; --length)
      tokens.push_back(static_cast<int32_t>(random() % 60'000));
  }
  return documents;
}

std::string datatrove_index(const Documents& documents) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const auto& tokens : documents) ends.push_back(end += static_cast<int64_t>(tokens.size()));
  return bytes_of(ends);
}

std::string llmc(int32_t magic, const std::string& tokens, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = 1;
  header[2] = count;
  return bytes_of(header) + tokens;
}

std::string numpy(const std::string& dtype, const std::string& values) {
  std::string header = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (1,), }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + bytes_of(std::vector{static_cast<uint16_t>(header.size())}) + header +
         values;
}

Documents read_all(RecordSource& source) {
  Documents documents;
  for (int64_t i = 0; auto record = source.read(i); ++i) documents.push_back(document_tokens(*record));
  return documents;
}

Documents read_all(const fs::path& path, const RecordSourceOptions& options = {}) {
  RecordSource source(path, options);
  return read_all(source);
}

std::string read_error(const fs::path& path, const RecordSourceOptions& options = {}) {
  return error_of([&] { read_all(path, options); });
}

// All kinds with documents, under names of their own.
std::vector<fs::path> write_kinds(const TemporaryFolder& folder, const Documents& documents) {
  folder.write("u2/a.bin", packed<uint16_t>(documents));
  folder.write("i4/a.bin", packed<int32_t>(documents));
  folder.write("i8/a.bin", packed<int64_t>(documents));
  folder.write("d2/a.ds", packed<uint16_t>(documents));
  folder.write("d2/a.ds.index", datatrove_index(documents));
  folder.write("d4/a.ds", packed<uint32_t>(documents));
  folder.write("d4/a.ds.index", datatrove_index(documents));
  return {folder.write("u2/a.idx", megatron_index(documents, 8, 2)),
          folder.write("i4/a.idx", megatron_index(documents, 4, 4)),
          folder.write("i8/a.idx", megatron_index(documents, 5, 8)),
          folder.path() / "d2",
          folder.path() / "d4",
          folder.write("m/shard.00000.mds", mds_shard(documents)),
          folder.write("z/shard.00000.mds.zstd", zstd(mds_shard(documents)))};
}

ReadOptions tokens_column() { return {.text_field = "tokens"}; }

TEST(TokenFiles, OfAllMakersAreReadInAnyOrder) {
  const TemporaryFolder folder;
  const Documents documents = random_documents(3000);
  for (const fs::path& path : write_kinds(folder, documents)) {
    EXPECT_EQ(read_all(path, {.reading = tokens_column()}), documents) << path;
    RecordSource source(path, {.reading = tokens_column(), .cache_bytes = 1 << 14});
    for (const SourceFile& file : source.files()) EXPECT_TRUE(file.format->is_indexed());
    std::mt19937_64 random(3);
    for (int i = 0; i < 50; ++i) {
      const auto record = static_cast<int64_t>(random() % documents.size());
      EXPECT_EQ(document_tokens(*source.read(record)), documents[static_cast<size_t>(record)]);
    }
    EXPECT_EQ(source.count_up_to(1 << 30), 3000);
  }
}

TEST(TokenFiles, MayBeNamedByTheirPrefixOrTheirTokens) {
  const TemporaryFolder folder;
  const Documents documents = random_documents(20);
  write_kinds(folder, documents);
  for (const char* name : {"u2/a", "u2/a.bin", "u2", "d2/a"})
    EXPECT_EQ(read_all(folder.path() / name), documents) << name;
}

TEST(TokenFiles, TextColumnsOfShardsAreTexts) {
  const TemporaryFolder folder;
  folder.write("index.json", "{}");
  folder.write("shard.00000.mds", mds_shard(random_documents(7)));
  RecordSource source(folder.path(), {});
  EXPECT_EQ(document_text(*source.read(6), "text"), "text 6");
  EXPECT_FALSE(source.read(7).has_value());
}

TEST(TokenFiles, ArraysAreCutIntoRecords) {
  const TemporaryFolder folder;
  std::vector<int32_t> tokens(20'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 3 % 60'000);
  const Documents expected = {{tokens.begin(), tokens.begin() + 8192},
                              {tokens.begin() + 8192, tokens.begin() + 16384},
                              {tokens.begin() + 16384, tokens.end()}};
  const std::string two = packed<uint16_t>({tokens}), four = packed<int32_t>({tokens});
  EXPECT_EQ(read_all(folder.write("raw.npy", two)), expected);
  EXPECT_EQ(read_all(folder.write("raw.bin", four), {.reading = {.token_dtype = "uint32"}}), expected);
  EXPECT_EQ(read_all(folder.write("gpt2.bin", llmc(20240520, two, 20'000))), expected);
  EXPECT_EQ(read_all(folder.write("llama.bin", llmc(20240801, four, 20'000))), expected);
  EXPECT_EQ(read_all(folder.write("real.npy", numpy("<i4", four))), expected);
  EXPECT_EQ(read_all(folder.write("no_ending", llmc(20240520, two, 20'000))), expected);
}

TEST(TokenFiles, GiveTheSameSamplesOn1And2And4ReadersAndAfterAResume) {
  const TemporaryFolder folder;
  const Documents documents = random_documents(700);
  std::vector<fs::path> paths = write_kinds(folder, documents);
  for (const fs::path& path : paths) {
    const auto make = [&](int64_t rank, int64_t ranks) {
      return std::make_unique<Loader>(
          CorpusOptions{
              .name = "test", .path = path, .text_field = "tokens", .streams = 8, .rank = rank, .ranks = ranks},
          nullptr, LoaderOptions{.batch = 4 / ranks, .packing = {.seq_len = 40}});
    };
    const Rows expected = read_batches(*make(0, 1), 60);
    std::optional<LoaderState> saved;
    for (const int64_t ranks : {1, 2, 4}) {
      std::vector<Rows> per_rank;
      std::vector<LoaderState> states;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        auto loader = make(rank, ranks);
        if (saved) loader->load(*saved);
        per_rank.push_back(read_batches(*loader, 20));
        states.push_back(loader->state());
      }
      Rows global;
      for (size_t i = 0; i < per_rank[0].size(); ++i)
        for (const Rows& rows : per_rank) global.push_back(rows.at(i));
      const auto begin = expected.begin() + (ranks == 1 ? 0 : ranks == 2 ? 80 : 160);
      EXPECT_EQ(global, Rows(begin, begin + 80)) << path << " on " << ranks;
      saved = loader_state_from_json(to_json(merge(states)));
    }
  }
}

TEST(TokenFiles, DamageHasASentence) {
  const TemporaryFolder folder;
  const Documents documents = random_documents(30);
  write_kinds(folder, documents);
  const std::string index = megatron_index(documents, 8, 2);
  const auto damaged = [&](size_t at, const std::string& bytes) {
    std::string copy = index;
    copy.replace(at, bytes.size(), bytes);
    return read_error(folder.write("u2/a.idx", copy));
  };
  EXPECT_NE(
      damaged(0, "X").find("is not an index of Megatron: it does not begin with MMIDIDX. Fetch or make it again."),
      std::string::npos);
  EXPECT_NE(damaged(9, "\x02").find("version 2, and only version 1"), std::string::npos);
  EXPECT_NE(damaged(17, "\x07").find("Megatron's type 7"), std::string::npos);
  EXPECT_NE(damaged(18, "\x09").find("do not fit 9 sequences"), std::string::npos);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_NE(damaged(26, bytes_of(std::vector{kLeast})).find(fmt::format("and {} bounds of documents", kLeast)),
            std::string::npos);
  EXPECT_NE(damaged(34, "\xff\xff\xff\x7f").find("it is truncated or damaged"), std::string::npos);
  fs::remove(folder.path() / "u2/a.bin");
  EXPECT_NE(read_error(folder.path() / "u2/a.idx").find("needs a.bin beside it, which cannot be read"),
            std::string::npos);
  folder.write("d2/a.ds", "odd");
  EXPECT_NE(read_error(folder.path() / "d2").find("which is neither 2 nor 4 for each of the"), std::string::npos);
  EXPECT_NE(read_error(folder.write("x.bin", llmc(20240520, "1234", 9))).find("whose header names 9 tokens"),
            std::string::npos);
  EXPECT_NE(read_error(folder.write("odd.npy", "123"))
                .find("no multiple of the 2 bytes of a token. Set "
                      "training.token_dtype to the type of its tokens."),
            std::string::npos);
  EXPECT_NE(read_error(folder.write("f.npy", numpy("<f4", "1234"))).find("is an array of numpy of another type"),
            std::string::npos);
  EXPECT_NE(read_error(folder.write("s.mds", mds_shard(documents).substr(0, 50))).find("is not a shard of MDS"),
            std::string::npos);
  EXPECT_NE(read_error(folder.write("t.mds", mds_shard(documents)), {.reading = {.text_field = "id"}})
                .find("has \"int\" in its column \"id\", but str, bytes or ndarray"),
            std::string::npos);
}

// Sequences of an index may lie anywhere in the file, but no document has more tokens than all of them together.
TEST(TokenFiles, ADocumentThatRepeatsTheFileIsRefused) {
  const TemporaryFolder folder;
  folder.write("a.bin", "12345678");
  std::string index = std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector<int64_t>{1}) + '\x08';
  index += bytes_of(std::vector<int64_t>{1000, 2}) + bytes_of(std::vector<int32_t>(1000, 4));
  index += bytes_of(std::vector<int64_t>(1000, 0)) + bytes_of(std::vector<int64_t>{0, 1000});
  EXPECT_NE(
      read_error(folder.write("a.idx", index))
          .find("has a document of 1000 sequences that is longer than all tokens together. Fetch or make it again."),
      std::string::npos);
}

TEST(TokenFiles, EmptyDocumentsHaveNoTokens) {
  const TemporaryFolder folder;
  folder.write("a.ds", "1234");
  folder.write("a.ds.index", bytes_of(std::vector<int64_t>{0, 2, 2}));
  const Documents read = read_all(folder.path());
  ASSERT_EQ(read.size(), 3U);
  EXPECT_TRUE(read[0].empty() && read[2].empty());
  EXPECT_EQ(read[1].size(), 2U);
}

TEST(TokenFiles, ColumnsBeyondAnySizeAreRefused) {
  const TemporaryFolder folder;
  const std::string sizes = R"({"column_names":["a","tokens"],"column_encodings":["int","bytes"],)"
                            R"("column_sizes":[9223372036854775807,null]})";
  const auto first = static_cast<uint32_t>(12 + sizes.size());
  EXPECT_NE(read_error(folder.write("b.mds", bytes_of(std::vector<uint32_t>{1, first, first + 8}) + sizes + "12345678"))
                .find("has a sample that is shorter than its columns"),
            std::string::npos);
}

TEST(TokenFiles, NumbersThatAreNoIdsAreBadRecords) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.npy", bytes_of(std::vector<int32_t>{1, -5}));
  EXPECT_EQ(read_error(path, {.reading = {.token_dtype = "int32"}}),
            fmt::format("{}:1: token 1 of this record is -5, which is no token id. Repair or remove the record, or set "
                        "training.skip_bad_records to leave such records out.",
                        path.string()));
}

TEST(TokenFiles, NamesThatContradictTheContentHaveASentence) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.jsonl", llmc(20240520, "12", 1));
  EXPECT_EQ(read_error(path),
            fmt::format("Data file {} is read as JSON lines because of its name, but its content is an "
                        "array of tokens. Rename it.",
                        path.string()));
  const auto zipped = folder.write("b.jsonl", gzip("{}"));
  EXPECT_EQ(read_error(zipped),
            fmt::format("Data file {} holds gzip data, which its name does not say. Rename it to end in .gz.",
                        zipped.string()));
}

TEST(TokenFiles, TextWithoutATokenizerHasASentence) {
  const TemporaryFolder folder;
  Loader loader({.name = "test", .path = folder.write("a.txt", "text"), .streams = 1}, nullptr, {.batch = 1});
  EXPECT_EQ(error_of([&] { loader.next(); }),
            "Dataset test holds text, which needs a tokenizer. Set model.hf_assets_path to a folder that has one.");
}

}  // namespace
}  // namespace titanium::data::testing
