// Data sets that are dealt to streams by blocks: Note [Lanes].
#include "titanium/data/striping.h"

#include "tests/support/bytes_read.h"
#include "tests/support/data_files.h"
#include "tests/support/data_format_bytes.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

constexpr int64_t kStreams = 32;
constexpr int64_t kSeqLen = 50;
constexpr int64_t kBlockBytes = 4 << 10;
constexpr int64_t kLanes = 16;
constexpr int64_t kBatch = 32;

using Documents = std::vector<std::string>;
using Loaders = std::vector<std::unique_ptr<Loader>>;

// A data set of several files that are large against blocks, as the files hold it.
struct Lines {
  std::map<std::string, std::string> files;  // in their order
};

Lines write_lines(const TemporaryFolder& folder, int64_t count = 6000) {
  const Documents documents = make_documents(count);
  Lines lines;
  size_t begin = 0;
  for (const auto& [name, share] : {std::pair{"a.jsonl", 2}, {"b.jsonl", 5}, {"c.jsonl", 3}}) {
    const size_t end = std::min(begin + documents.size() * static_cast<size_t>(share) / 10, documents.size());
    const auto at = [&](size_t place) { return documents.begin() + static_cast<ptrdiff_t>(place); };
    lines.files[name] = to_json_lines({at(begin), at(end)});
    begin = end;
    folder.write(std::string("lines/") + name, lines.files[name]);
  }
  return lines;
}

CorpusOptions by_blocks(const fs::path& path) {
  return {.name = "test",
          .path = path,
          .streams = kStreams,
          .cache_bytes = 1 << 18,
          .striping = StripingChoice::kBlocks,
          .block_bytes = kBlockBytes};
}

Loaders make_loaders(CorpusOptions corpus, int64_t ranks, int64_t workers = 0) {
  Loaders loaders;
  corpus.ranks = ranks;
  for (corpus.rank = 0; corpus.rank < ranks; ++corpus.rank)
    loaders.push_back(std::make_unique<Loader>(
        corpus, encode_bytes,
        LoaderOptions{.batch = kBatch / ranks, .packing = {.seq_len = kSeqLen}, .num_workers = workers}));
  return loaders;
}

Rows read_global(Loaders& loaders, int64_t steps) {
  std::vector<Rows> per_rank;
  for (auto& loader : loaders) per_rank.push_back(read_batches(*loader, steps));
  Rows global;
  for (size_t i = 0; i < per_rank[0].size(); ++i)
    for (const Rows& rows : per_rank) global.push_back(rows.at(i));
  return global;
}

LoaderState merged_state(const Loaders& loaders) {
  std::vector<LoaderState> states;
  for (const auto& loader : loaders) states.push_back(loader_state_from_json(to_json(loader->state())));
  return merge(states);
}

// Reference, from the definition: which documents each lane has.
std::vector<Documents> expected_lanes(const Lines& lines, int64_t lanes) {
  std::vector<Documents> dealt(static_cast<size_t>(lanes));
  std::vector<int64_t> bytes(static_cast<size_t>(lanes));
  for (const auto& [name, content] : lines.files) {
    std::map<size_t, Documents> blocks;
    for (size_t begin = 0; begin < content.size();) {
      const size_t end = content.find('\n', begin) + 1;
      blocks[begin / kBlockBytes].push_back(nlohmann::json::parse(content.substr(begin, end - begin))["text"]);
      begin = end;
    }
    for (size_t b = 0; b * kBlockBytes < content.size(); ++b) {
      const auto lane = static_cast<size_t>(std::ranges::min_element(bytes) - bytes.begin());
      bytes[lane] += static_cast<int64_t>(std::min<size_t>(kBlockBytes, content.size() - b * kBlockBytes));
      dealt[lane].insert(dealt[lane].end(), blocks[b].begin(), blocks[b].end());
    }
  }
  return dealt;
}

Rows expected_samples(const std::vector<Documents>& lanes, int64_t count) {
  const auto streams = static_cast<size_t>(kStreams);
  std::vector<std::vector<int64_t>> pending(streams);
  std::vector<size_t> next(streams);
  for (size_t s = 0; s < streams; ++s) next[s] = s;
  Rows rows;
  for (int64_t i = 0; i < count; ++i) {
    const auto s = static_cast<size_t>(i % kStreams);
    const Documents& lane = lanes[s % lanes.size()];
    while (pending[s].size() < kSeqLen + 1) {
      if (next[s] / lanes.size() >= lane.size()) next[s] = s;
      for (const int32_t token : encode_bytes(lane[next[s] / lanes.size()])) pending[s].push_back(token);
      next[s] += streams;
    }
    rows.emplace_back(pending[s].begin(), pending[s].begin() + kSeqLen + 1);
    pending[s].erase(pending[s].begin(), pending[s].begin() + kSeqLen + 1);
  }
  return rows;
}

class StripingTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  Lines lines_ = write_lines(folder_);
  fs::path path_ = folder_.path() / "lines";
};

TEST_F(StripingTest, SamplesAreThoseOfTheDefinitionThroughSeveralEpochs) {
  auto loaders = make_loaders(by_blocks(path_), 1);
  EXPECT_EQ(loaders[0]->state().sources[0].striping, (Striping{.lanes = kLanes, .block_bytes = kBlockBytes}));
  EXPECT_EQ(read_global(loaders, 1000), expected_samples(expected_lanes(lines_, kLanes), 1000 * kBatch));
}

TEST_F(StripingTest, GlobalOrderIsTheSameForAnyNumberOfReaders) {
  const Rows expected = expected_samples(expected_lanes(lines_, kLanes), 60 * kBatch);
  for (const int64_t ranks : {2, 4, 8, 16, 32}) {  // of the last, two read from each lane
    for (const int64_t workers : {0, 3}) {
      auto loaders = make_loaders(by_blocks(path_), ranks, workers);
      EXPECT_EQ(read_global(loaders, 60), expected) << ranks << " ranks, " << workers << " workers";
    }
  }
}

// Tokens in three files of each format that has an index inside or beside it, and in many that are compressed.
void write_token_formats(const TemporaryFolder& folder, const Documents& documents) {
  const auto part = [&](size_t i, size_t parts) {
    TokenDocuments tokens;
    for (size_t d = i; d < documents.size(); d += parts) tokens.emplace_back(documents[d].begin(), documents[d].end());
    return tokens;
  };
  for (size_t i = 0; i < 3; ++i) {
    folder.write(fmt::format("megatron/{}.idx", i), megatron_index(part(i, 3), 8, 2));
    folder.write(fmt::format("megatron/{}.bin", i), packed<uint16_t>(part(i, 3)));
    folder.write(fmt::format("mds/shard.{}.mds", i), mds_shard(part(i, 3)));
  }
  for (size_t i = 0; i < 75; ++i) folder.write(fmt::format("mds_gz/{:02}.mds.gz", i), gzip(mds_shard(part(i, 75))));
}

void write_archives(const TemporaryFolder& folder, const Documents& documents) {
  for (size_t i = 0; i < 75; ++i) {
    std::string archive;
    for (size_t d = i * 40; d < i * 40 + 40; ++d) {
      archive += tar_member(fmt::format("{:06}.jpg", d), std::string(d % 3 * 100, '\xff'));
      archive += tar_member(fmt::format("{:06}.txt", d), documents[d]);
    }
    archive += std::string(1024, '\0');
    folder.write(fmt::format("tar/{:02}.tar", i), archive);
    folder.write(fmt::format("tar_gz/{:02}.tar.gz", i), gzip(archive));
  }
}

// The same data in every format that can be skipped in and that needs no plug-in.
std::vector<fs::path> write_formats(const TemporaryFolder& folder) {
  const Documents documents = make_documents(3000, 4);
  std::vector<fs::path> paths;
  paths.push_back(folder.write("one/data.jsonl", to_json_lines(documents)).parent_path());
  std::string tokens, ends;
  int64_t end = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    for (const char byte : documents[i]) tokens += {byte, '\0'};
    end += static_cast<int64_t>(documents[i].size());
    ends.append(reinterpret_cast<const char*>(&end), 8);
    folder.write(fmt::format("texts/{:05}.txt", i), documents[i].empty() ? " " : documents[i]);
  }
  for (size_t i = 0; i < 75; ++i) {
    const auto begin = documents.begin() + static_cast<ptrdiff_t>(i * 40);
    const std::string lines = to_json_lines({begin, begin + 40});
    folder.write(fmt::format("files/{:02}.jsonl{}", i, i % 2 == 0 ? ".gz" : ".zst"),
                 i % 2 == 0 ? gzip(lines) : zstd(lines));
  }
  folder.write("tokens/a.ds.index", ends);
  folder.write("tokens/a.ds", tokens);
  folder.write("arrays/a.bin", tokens);
  write_token_formats(folder, documents);
  write_archives(folder, documents);
  for (const char* name : {"texts", "files", "tokens", "arrays", "megatron", "mds", "mds_gz", "tar", "tar_gz"})
    paths.push_back(folder.path() / name);
  return paths;
}

TEST(StripingFormats, StopsAndOtherReadersChangeNothing) {
  const TemporaryFolder folder;
  std::mt19937_64 random(3);
  for (const fs::path& path : write_formats(folder)) {
    for (const bool shuffle : {false, true}) {
      CorpusOptions corpus = by_blocks(path);
      corpus.streams = path.filename() == "arrays" ? 8 : kStreams;  // 20 records of 8,192 tokens
      corpus.block_bytes = path.filename() == "arrays" ? 1 << 14 : kBlockBytes;
      corpus.text_field = path.filename().string().starts_with("mds") ? "tokens" : "text";
      corpus.shuffle = shuffle;
      corpus.shuffle_window = 256;
      const auto batches = [&](int64_t ranks) {
        return make_loaders(corpus, ranks, static_cast<int64_t>(random() % 3));
      };
      auto whole = batches(1);
      EXPECT_TRUE(whole[0]->state().sources[0].striping.by_blocks()) << path;
      const Rows expected = read_global(whole, 120);
      Rows rows;
      std::optional<LoaderState> state;
      for (int64_t done = 0; done < 120;) {
        const int64_t steps = std::min<int64_t>(static_cast<int64_t>(random() % 30), 120 - done);
        auto loaders = batches(int64_t{1} << (random() % 4));
        for (auto& loader : loaders)
          if (state) loader->load(*state);
        for (auto& row : read_global(loaders, steps)) rows.push_back(std::move(row));
        state = merged_state(loaders);
        done += steps;
      }
      EXPECT_EQ(rows, expected) << path << (shuffle ? " shuffled" : "");
    }
  }
}

TEST(StripingReads, ARankReadsItsShareOfTheBytesAndNotThoseOfOthers) {
  if (bytes_read() < 0) GTEST_SKIP() << "the kernel does not count what is read";
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 8000; ++i) lines += to_json_lines({fmt::format("{} {}", i, std::string(1000, 'x'))});
  const fs::path path = folder.write("data.jsonl", lines);
  const auto reads = [&](StripingChoice choice, int64_t ranks) {
    CorpusOptions corpus{.name = "test", .path = path, .streams = 8, .ranks = ranks, .striping = choice};
    const int64_t before = bytes_read();
    Loader loader(corpus, encode_bytes,
                  {.batch = 8, .packing = {.seq_len = 512, .infinite = false}, .prefetch_factor = 1});
    while (loader.next()) continue;
    return static_cast<double>(bytes_read() - before) / static_cast<double>(lines.size());
  };
  EXPECT_GT(reads(StripingChoice::kRecords, 4), 0.99);
  for (const int64_t ranks : {1, 2, 4, 8}) {
    const double share = reads(StripingChoice::kBlocks, ranks);
    EXPECT_GT(share, 0.9 / static_cast<double>(ranks));
    // Beside its share: the ends of lines behind 64 KiB blocks, and the first records.
    EXPECT_LT(share, 1.1 / static_cast<double>(ranks) + 0.1) << ranks;
  }
}

TEST_F(StripingTest, EachPassOfAShuffleHasEachRecordOnceAndDealsBlocksAnew) {
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += fmt::format("{{\"text\":\"{:06}\"}}\n", i);
  CorpusOptions corpus = by_blocks(folder_.write("numbers/data.jsonl", lines));
  corpus.streams = 4;
  corpus.block_bytes = 1 << 10;
  corpus.shuffle = true;
  corpus.shuffle_window = 64;
  Corpus shuffled(corpus, [](std::string_view text) { return std::vector<int32_t>{std::stoi(std::string(text))}; });
  EXPECT_EQ(shuffled.striping().lanes, 4);
  std::vector<std::vector<std::set<int32_t>>> found(2, std::vector<std::set<int32_t>>(4));
  for (int64_t pass = 0; pass < 2; ++pass) {
    size_t in_order = 0, records = 0;
    for (int64_t lane = 0; lane < 4; ++lane) {
      int32_t last = -1;
      for (int64_t place = lane; const auto document = shuffled.document(place, pass); place += 4) {
        for (const int32_t number : document->tokens) {
          EXPECT_TRUE(found[static_cast<size_t>(pass)][static_cast<size_t>(lane)].insert(number).second) << number;
          in_order += number == last + 1 ? 1 : 0;
          last = number;
          ++records;
        }
      }
    }
    EXPECT_EQ(records, 4000U);
    EXPECT_LT(in_order, 400U);
  }
  EXPECT_NE(found[0], found[1]);
}

TEST_F(StripingTest, LanesOfAMixHaveTheSamplesOfTheirSource) {
  const auto mix = [&](int64_t ranks, std::optional<LoaderState> state, int64_t steps, Rows& rows) {
    Loaders loaders;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      CorpusOptions blocks = by_blocks(path_), records = by_blocks(path_ / "a.jsonl");
      blocks.name = "blocks";
      records.name = "records";
      records.striping = StripingChoice::kRecords;
      std::vector<MixEntry> entries = {{.corpus = blocks}, {.corpus = records}};
      for (MixEntry& entry : entries) {
        entry.corpus.rank = rank;
        entry.corpus.ranks = ranks;
        entry.corpus.in_mix = true;
      }
      loaders.push_back(std::make_unique<Loader>(
          entries, std::vector<MixturePiece>{{.weights = {3, 1}}}, encode_bytes,
          LoaderOptions{.batch = kBatch / ranks, .packing = {.seq_len = kSeqLen}, .num_workers = rank % 2}));
      if (state) loaders.back()->load(*state);
    }
    for (auto& row : read_global(loaders, steps)) rows.push_back(std::move(row));
    return merged_state(loaders);
  };
  Rows whole, parts;
  mix(1, std::nullopt, 90, whole);
  std::optional<LoaderState> state;
  for (const int64_t ranks : {4, 1, 2}) state = mix(ranks, state, 30, parts);
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(state->sources[0].striping.lanes, kLanes);
  EXPECT_EQ(state->sources[1].striping, Striping{});
}

class StripingChoices : public ::testing::Test {
 protected:
  // 20 MB: enough for blocks without being asked for.
  static std::string large() {
    std::string lines;
    for (int i = 0; i < 20'000; ++i) lines += to_json_lines({fmt::format("{} {}", i, std::string(1000, 'y'))});
    return lines;
  }
  CorpusOptions corpus(StripingChoice choice) const {
    return {.name = "test", .path = path_, .streams = kStreams, .striping = choice};
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.write("data.jsonl", large());
};

TEST_F(StripingChoices, RunsFromBeforeGoOnWithTheirSamples) {
  auto before = make_loaders(corpus(StripingChoice::kRecords), 1);
  read_global(before, 10);
  const std::string saved = to_json(merged_state(before));
  EXPECT_EQ(nlohmann::json::parse(saved)["version"], 2);
  EXPECT_EQ(saved.find("striping"), std::string::npos);  // as such runs have saved it
  auto now = make_loaders(corpus(StripingChoice::kAuto), 2);
  EXPECT_EQ(now[0]->state().sources[0].striping.lanes, 2);  // what a new run would have
  for (auto& loader : now) loader->load(loader_state_from_json(saved));
  EXPECT_EQ(read_global(now, 40), read_global(before, 40));
  EXPECT_EQ(to_json(merged_state(now)), to_json(merged_state(before)));
}

TEST_F(StripingChoices, RunsByBlocksKeepTheirLanesWhenOthersWouldBeChosen) {
  CorpusOptions first = corpus(StripingChoice::kBlocks);
  first.most_lanes = 8;
  auto before = make_loaders(first, 1);
  read_global(before, 10);
  const std::string saved = to_json(merged_state(before));
  EXPECT_EQ(nlohmann::json::parse(saved)["version"], 3);
  auto now = make_loaders(corpus(StripingChoice::kAuto), 4);
  for (auto& loader : now) loader->load(loader_state_from_json(saved));
  EXPECT_EQ(read_global(now, 40), read_global(before, 40));
  EXPECT_EQ(now[0]->state().sources[0].striping.lanes, 8);
}

TEST_F(StripingChoices, AnotherChoiceThanTheSavedOneIsRefused) {
  auto records = make_loaders(corpus(StripingChoice::kRecords), 1);
  auto blocks = make_loaders(corpus(StripingChoice::kBlocks), 1);
  const LoaderState of_records = merged_state(records);
  LoaderState of_blocks = merged_state(blocks);
  EXPECT_EQ(error_of([&] { blocks[0]->load(of_records); }),
            "The saved data position of dataset test is dealt by records, and training.data_striping asks for blocks. "
            "Set it to \"auto\" to go on with the saved run.");
  EXPECT_EQ(error_of([&] { records[0]->load(of_blocks); }),
            "The saved data position of dataset test is dealt by blocks of 65,536 bytes in 32 lanes, and "
            "training.data_striping asks for records. Set it to \"auto\" to go on with the saved run.");
  auto now = make_loaders(corpus(StripingChoice::kAuto), 1);
  const LoaderState state = merged_state(now);
  of_blocks.sources[0].striping.lanes = 5;
  EXPECT_EQ(error_of([&] { now[0]->load(of_blocks); }),
            "The saved data position of dataset test is damaged: 5 lanes for 32 streams. Use another checkpoint.");
  of_blocks.sources[0].striping.lanes = 8;
  of_blocks.sources[0].positions[3] = {.record = 4};
  EXPECT_NE(error_of([&] { now[0]->load(of_blocks); }).find("of stream 3 is damaged"), std::string::npos);
  EXPECT_EQ(merged_state(now), state);
  EXPECT_EQ(read_global(now, 5).size(), 5U * kBatch);  // and goes on
}

TEST_F(StripingChoices, SmallOrUndividedDataIsDealtByRecords) {
  const auto small = folder_.write("small.jsonl", to_json_lines(make_documents(3000)));
  const auto packed = folder_.write("packed.jsonl.gz", gzip(large()));
  for (const fs::path& path : {small, packed}) {
    CorpusOptions options = corpus(StripingChoice::kAuto);
    options.path = path;
    EXPECT_EQ(Corpus(options, encode_bytes).striping(), Striping{}) << path;
  }
  CorpusOptions asked = corpus(StripingChoice::kBlocks);
  asked.path = packed;
  EXPECT_EQ(error_of([&] { Corpus(asked, encode_bytes); }),
            "Dataset test cannot be dealt by blocks: it has fewer records than data streams, or too little data that "
            "can be skipped (a compressed file or an archive is one block, and no block may be more than an eighth of "
            "the data). Set training.data_striping to \"auto\" or \"records\".");
}

TEST_F(StripingChoices, FewRecordsAreDealtOneByOne) {
  std::string lines;  // 20 MB in 20 records of 32 streams, and in 320: 10 for each stream
  for (const int count : {20, 320}) {
    lines.clear();
    for (int i = 0; i < count; ++i) lines += to_json_lines({std::string(20'000'000 / static_cast<size_t>(count), 'z')});
    CorpusOptions options = corpus(StripingChoice::kAuto);
    options.path = folder_.write("few.jsonl", lines);
    EXPECT_EQ(Corpus(options, encode_bytes).striping(), Striping{}) << count;
  }
}

TEST_F(StripingChoices, DocumentsBehindAnIndexAreCounted) {
  // 20 MB for 32 streams. Of 33 documents a block of 2 MiB holds 3, and a lane of 16 streams would have only 15.
  for (const auto& [documents, lanes] : {std::pair<int64_t, int64_t>{33, 1}, {511, 1}, {512, 2}}) {
    const int64_t tokens = 10'000'000 / documents;
    std::string ends;
    for (int64_t end = tokens; end <= documents * tokens; end += tokens)
      ends.append(reinterpret_cast<const char*>(&end), 8);
    folder_.write("few/a.ds.index", ends);
    CorpusOptions options = corpus(StripingChoice::kAuto);
    options.path = folder_.write("few/a.ds", std::string(static_cast<size_t>(2 * documents * tokens), '\1'));
    options.block_bytes = 2 << 20;
    auto loaders = make_loaders(options, 1);
    EXPECT_EQ(loaders[0]->state().sources[0].striping.lanes, lanes) << documents;
    EXPECT_EQ(read_global(loaders, 2).size(), 2U * kBatch) << documents;
  }
}

TEST_F(StripingChoices, PlansTellWhatRanksRead) {
  CorpusOptions options = corpus(StripingChoice::kAuto);
  options.ranks = 2;
  const auto size = static_cast<int64_t>(fs::file_size(path_));
  const ReadingPlan plan = Corpus(options, encode_bytes).reading_plan();
  EXPECT_EQ(plan.bytes, size);
  EXPECT_EQ(plan.blocks, (size + (1 << 20) - 1) >> 20);
  EXPECT_EQ(plan.least_bytes + plan.most_bytes, size);
  EXPECT_LE(plan.most_bytes - plan.least_bytes, 1 << 20);
  EXPECT_NE(describe(plan, 2).find("dealt by blocks of 1,048,576 bytes in 2 lanes (20 blocks), each of 2 ranks reads "),
            std::string::npos)
      << describe(plan, 2);
  options.striping = StripingChoice::kRecords;
  const std::string all = describe(Corpus(options, encode_bytes).reading_plan(), 2);
  EXPECT_TRUE(all.starts_with("dealt by records, each of 2 ranks reads all 20,")) << all;
}

// Sizes of files that need not be there: lines and compressed files are not opened.
std::vector<SourceFile> files_of(const std::vector<int64_t>& sizes, Compression compression = Compression::kNone) {
  std::vector<SourceFile> files;
  for (const int64_t size : sizes) files.push_back({.path = "x", .compression = compression, .size = size});
  return files;
}

TEST(Striping, FollowsFromTheSizesOfTheFiles) {
  const auto chosen = [](const std::vector<SourceFile>& files) { return choose_striping(files, {}, {}).striping; };
  constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;
  EXPECT_EQ(chosen(files_of({15 * kMiB})), Striping{});
  EXPECT_EQ(chosen(files_of({16 * kMiB})), (Striping{.lanes = 2, .block_bytes = kMiB}));
  EXPECT_EQ(chosen(files_of({100 * kMiB})), (Striping{.lanes = 8, .block_bytes = kMiB}));
  EXPECT_EQ(chosen(files_of({1024 * kGiB})), (Striping{.lanes = 256, .block_bytes = 64 * kMiB}));
  EXPECT_EQ(chosen(files_of(std::vector<int64_t>(2000, kGiB))), (Striping{.lanes = 256, .block_bytes = 0}));
  // A decoder takes more, so there are fewer lanes.
  EXPECT_EQ(chosen(files_of(std::vector<int64_t>(2000, kGiB), Compression::kGzip)), (Striping{.lanes = 64}));
  EXPECT_EQ(chosen(files_of(std::vector<int64_t>(30, kGiB), Compression::kGzip)), (Striping{.lanes = 4}));
  std::vector<int64_t> uneven(2000, kMiB);
  uneven[77] = kGiB;  // can be cut, and where it is compressed it cannot
  EXPECT_EQ(chosen(files_of(uneven)).lanes, 256);
  EXPECT_EQ(chosen(files_of(uneven, Compression::kZstd)), Striping{});
  const auto few = choose_striping(files_of({1024 * kGiB}), {.streams = 96, .lanes = 50}, {}).striping;
  EXPECT_EQ(few.lanes, 48);  // divides the streams
}

TEST(Striping, LanesDifferByNoMoreThanTheLargestBlock) {
  std::mt19937_64 random(9);
  std::vector<FileBlock> blocks;
  int64_t largest = 0;
  for (int64_t i = 0; i < 3000; ++i) {
    blocks.push_back({.file = i, .part = {.bytes = static_cast<int64_t>(random() % (i % 9 == 0 ? 900'000 : 9'000))}});
    largest = std::max(largest, blocks.back().part.bytes);
  }
  for (const std::optional<uint64_t> key : {std::optional<uint64_t>(), std::optional<uint64_t>(5)}) {
    std::vector<int64_t> sizes;
    std::set<int64_t> seen;
    for (const auto& lane : deal_blocks(blocks, 64, key)) {
      sizes.push_back(0);
      for (const int64_t block : lane) {
        sizes.back() += blocks[static_cast<size_t>(block)].part.bytes;
        seen.insert(block);
      }
    }
    EXPECT_EQ(seen.size(), 3000U);
    EXPECT_LE(*std::ranges::max_element(sizes) - *std::ranges::min_element(sizes), largest);
  }
}

TEST(Striping, EveryLaneNeedsRecordsForItsStreamsAndWithAShuffleAReserve) {
  using Blocks = std::vector<std::pair<int64_t, int64_t>>;                  // bytes and records of each
  const auto fits = [](const Blocks& sizes, std::optional<uint64_t> key) {  // 8 streams, 4 to a lane
    StripedFiles striped{.striping = {.lanes = 2}, .blocks = {}};
    for (const auto& [bytes, records] : sizes)
      striped.blocks.push_back({.file = 0, .part = {.bytes = bytes, .records = records}});
    return has_many_records(striped, 8, key, {});
  };
  EXPECT_FALSE(fits({{10, 63}, {10, 64}}, {}));
  EXPECT_TRUE(fits({{10, 64}, {10, 64}}, {}));
  EXPECT_FALSE(fits({{10, 3}, {10, 900}}, {}));
  EXPECT_TRUE(fits({{10, 4}, {10, 900}}, {}));
  EXPECT_FALSE(fits({{10, 1}, {5, 300}, {5, 300}, {10, 1}, {5, 300}, {5, 300}}, {}));  // the long ones meet in a lane
  for (const uint64_t key : {1, 2, 3}) {
    EXPECT_FALSE(fits({{10, 63}, {10, 900}}, key));
    EXPECT_TRUE(fits({{10, 64}, {10, 64}}, key));
  }
}

// All records of the parts of a file, one part after the other.
Documents records_of(const fs::path& path, int64_t bytes, std::vector<std::string>* places = nullptr) {
  std::vector<SourceFile> parts;
  const auto files = find_source_files(path, false);
  for (const FileBlock& block : find_blocks(files, bytes, {})) {
    parts.push_back(files[static_cast<size_t>(block.file)]);
    parts.back().part = block.part;
  }
  RecordSource source(parts, {.forgets_places = true});
  Documents found;
  for (int64_t i = 0; const auto record = source.read(i); ++i) {
    found.emplace_back(record->bytes);
    if (places != nullptr) places->push_back(record->place());
  }
  return found;
}

TEST_F(StripingTest, EveryLineIsInOnePartWhereverPartsEnd) {
  std::string lines = "\n  \n";
  Documents expected;
  std::mt19937_64 random(8);
  for (int i = 0; i < 300; ++i) {
    expected.push_back(fmt::format("{}{}", i, std::string(random() % (i % 50 == 7 ? 900 : 12), 'q')));
    lines += expected.back() + (i % 3 == 0 ? "\n\n" : "\n");
  }
  lines.pop_back();  // the last line has no end
  const auto path = folder_.write("odd/data.jsonl", lines);
  for (int64_t bytes = 1; bytes < 200; bytes += bytes < 40 ? 1 : 13)
    EXPECT_EQ(records_of(path, bytes), expected) << bytes;
  EXPECT_EQ(records_of(path, 1 << 20), expected);
}

TEST_F(StripingTest, MessagesNamePlacesInsideFilesByBytes) {
  std::vector<std::string> places;
  const auto path = folder_.write("few/data.jsonl", "aa\nbb\ncc\ndd\n");
  EXPECT_EQ(records_of(path, 4, &places), (Documents{"aa", "bb", "cc", "dd"}));
  EXPECT_EQ(places[1], path.string() + ":2");
  EXPECT_EQ(places[2], path.string() + " (byte 4, line 1 from there)");
}

TEST_F(StripingTest, PartsOfIndexedFilesHaveAllDocuments) {
  write_formats(folder_);
  for (const char* name : {"tokens", "arrays"}) {
    const fs::path path = folder_.path() / name;
    const Documents expected = records_of(path, 1 << 30);
    for (const int64_t bytes : {1, 5'000, 70'000}) EXPECT_EQ(records_of(path, bytes), expected) << path << bytes;
  }
}

TEST_F(StripingTest, PlacesOfABlockAreForgottenWhenItHasBeenRead) {
  const auto files = find_source_files(path_ / "b.jsonl", false);
  std::vector<SourceFile> parts;
  for (const FileBlock& block : find_blocks(files, 64 << 10, {})) {
    parts.push_back(files[0]);
    parts.back().part = block.part;
  }
  RecordSource source(parts, {.reading = {.block_bytes = 1 << 10}, .forgets_places = true});
  const int64_t records = source.count_up_to(1 << 30);
  EXPECT_EQ(records, 3000);
  EXPECT_EQ(source.anchor_before(200).offset, 0);           // the beginning of the first part
  EXPECT_GT(source.anchor_before(records - 30).offset, 0);  // inside the last one
  EXPECT_TRUE(source.read(200).has_value());
}

TEST_F(StripingTest, AStreamWithoutTokensNamesTheRemedy) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"text\":5}\n";
  CorpusOptions corpus = by_blocks(folder_.write("bad/data.jsonl", lines));
  corpus.block_bytes = 256;
  corpus.skip_bad_records = true;
  auto loaders = make_loaders(corpus, 1);
  EXPECT_NE(error_of([&] {
              read_global(loaders, 1);
            }).find("use fewer training.data_streams, or set training.data_striping to \"records\"."),
            std::string::npos);
}

}  // namespace
}  // namespace titanium::data::testing
