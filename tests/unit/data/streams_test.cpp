// Canonical streams: what is delivered does not depend on ranks, threads, stops or the kind of file.
#include "tests/support/data_files.h"

namespace titanium::data::testing {
namespace {

constexpr int64_t kStreams = 32;
constexpr int64_t kSeqLen = 50;

struct Setup {
  fs::path path;
  int64_t ranks = 1;
  int64_t batch = 8;
  int64_t num_workers = 0;
  bool infinite = true;
  bool keep_remainder = false;
  int64_t streams = kStreams;
};

std::unique_ptr<Loader> make_loader(const Setup& setup, int64_t rank = 0) {
  return std::make_unique<Loader>(
      CorpusOptions{.name = "test",
                    .path = setup.path,
                    .streams = setup.streams,
                    .rank = rank,
                    .ranks = setup.ranks,
                    .cache_bytes = 1 << 18},
      encode_bytes,
      LoaderOptions{.batch = setup.batch,
                    .packing = {.seq_len = kSeqLen, .infinite = setup.infinite, .keep_remainder = setup.keep_remainder},
                    .num_workers = setup.num_workers});
}

std::vector<std::unique_ptr<Loader>> make_loaders(const Setup& setup) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int64_t rank = 0; rank < setup.ranks; ++rank) loaders.push_back(make_loader(setup, rank));
  return loaders;
}

// `steps` batches of every rank, put into the global order: sample i comes from rank i mod ranks.
Rows read_global(std::vector<std::unique_ptr<Loader>>& loaders, int64_t steps) {
  std::vector<Rows> per_rank;
  for (auto& loader : loaders) per_rank.push_back(read_batches(*loader, steps));
  Rows global;
  for (size_t i = 0; i < per_rank[0].size(); ++i)
    for (const Rows& rows : per_rank) global.push_back(rows.at(i));
  return global;
}

LoaderState merged_state(const std::vector<std::unique_ptr<Loader>>& loaders) {
  std::vector<LoaderState> states;
  for (const auto& loader : loaders) states.push_back(loader_state_from_json(to_json(loader->state())));
  return merge(states);
}

// Reference: streams and samples written down directly from their definition, without blocks, threads or positions.
Rows expected_samples(const std::vector<std::string>& documents, int64_t streams, int64_t count) {
  std::vector<std::vector<int64_t>> pending(static_cast<size_t>(streams));
  std::vector<size_t> next(static_cast<size_t>(streams));
  for (size_t s = 0; s < next.size(); ++s) next[s] = s;
  Rows rows;
  for (int64_t i = 0; i < count; ++i) {
    const auto s = static_cast<size_t>(i % streams);
    while (pending[s].size() < kSeqLen + 1) {
      if (next[s] >= documents.size()) next[s] = s;
      for (const int32_t token : encode_bytes(documents[next[s]])) pending[s].push_back(token);
      next[s] += static_cast<size_t>(streams);
    }
    rows.emplace_back(pending[s].begin(), pending[s].begin() + kSeqLen + 1);
    pending[s].erase(pending[s].begin(), pending[s].begin() + kSeqLen + 1);
  }
  return rows;
}

class Streams : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::vector<std::string> documents_ = make_documents(400);
  fs::path path_ = folder_.write("data.jsonl", to_json_lines(documents_));
};

TEST_F(Streams, SamplesAreThoseOfTheDefinitionThroughSeveralEpochs) {
  auto loader = make_loader({.path = path_});
  EXPECT_EQ(read_batches(*loader, 400), expected_samples(documents_, kStreams, 3200));
}

TEST_F(Streams, LabelsAreTheNextTokens) {
  auto loader = make_loader({.path = path_, .batch = 3});
  const Batch batch = loader->next().value();
  EXPECT_EQ(batch.inputs.size(), 3 * kSeqLen);
  EXPECT_EQ(batch.labels.size(), 3 * kSeqLen);
  for (size_t i = 0; i < batch.inputs.size(); ++i)
    if (i % kSeqLen != kSeqLen - 1) {
      EXPECT_EQ(batch.labels[i], batch.inputs[i + 1]);
    }
}

// By definition: rows, tokens after 257 (the end that encode_bytes writes), and with it those after an 'e'.
std::vector<int32_t> expected_starts(const Batch& batch, std::optional<int64_t> end_of_document) {
  std::vector<int32_t> starts;
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    const bool after_end = i > 0 && (batch.inputs[i - 1] == 257 || batch.inputs[i - 1] == end_of_document);
    if (i % kSeqLen == 0 || after_end) starts.push_back(static_cast<int32_t>(i));
  }
  return starts;
}

TEST_F(Streams, DocumentsStartWithTextsAndAfterTheTokenThatEndsThem) {
  for (const std::optional<int32_t> end : {std::optional<int32_t>(), std::optional<int32_t>('e')}) {
    for (const bool whole_set : {false, true}) {
      Loader loader(
          {.name = "test", .path = path_, .streams = kStreams}, encode_bytes,
          {.batch = 7,
           .packing = {
               .seq_len = kSeqLen, .infinite = !whole_set, .keep_remainder = whole_set, .end_of_document = end}});
      size_t inside = 0;
      for (int i = 0; i < 200; ++i) {
        const auto batch = loader.next();
        if (!batch) break;
        ASSERT_EQ(batch->document_starts, expected_starts(*batch, end)) << i;
        inside += batch->document_starts.size() - 7;  // not at the start of a row
      }
      EXPECT_GT(inside, 300U);
    }
  }
}

TEST_F(Streams, TextsThatNoTokenEndsAreDocumentsToo) {
  const auto path = folder_.write("few.jsonl", to_json_lines({"abc", "", "defgh"}));
  Loader loader({.name = "test", .path = path, .streams = 1},
                [](std::string_view text) { return std::vector<int32_t>(text.begin(), text.end()); },
                {.batch = 2, .packing = {.seq_len = 7}});
  const Batch batch = loader.next().value();  // abcdefg|h abcdefg|h: each document starts a row, and d does
  EXPECT_EQ(batch.document_starts, (std::vector<int32_t>{0, 3, 7, 10}));
  EXPECT_EQ(positions_in_documents(batch), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3}));
  const Batch second = rows_of(batch, 1, 1);
  EXPECT_EQ(second.inputs, (std::vector<int64_t>{'a', 'b', 'c', 'd', 'e', 'f', 'g'}));
  EXPECT_EQ(second.labels.back(), 'h');
  EXPECT_EQ(second.document_starts, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(positions_in_documents(second), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 3}));
}

TEST_F(Streams, GlobalOrderIsTheSameFor1And2And4And8Readers) {
  const Rows expected = expected_samples(documents_, kStreams, 1600);
  for (const int64_t ranks : {1, 2, 4, 8}) {
    for (const int64_t workers : {0, 3}) {
      auto loaders = make_loaders({.path = path_, .ranks = ranks, .batch = 8 / ranks, .num_workers = workers});
      EXPECT_EQ(read_global(loaders, 200), expected) << ranks << " ranks, " << workers << " workers";
    }
  }
}

TEST_F(Streams, NoRankTokenisesDocumentsOfAnother) {
  std::mutex mutex;
  std::set<std::string> seen;
  const Encoder encoder = [&](std::string_view text) {
    const std::lock_guard lock(mutex);
    seen.emplace(text);
    return encode_bytes(text);
  };
  Loader loader({.name = "test", .path = path_, .streams = kStreams, .rank = 1, .ranks = 4}, encoder,
                {.batch = 8, .packing = {.seq_len = kSeqLen}});
  read_batches(loader, 60);
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < documents_.size(); ++i)
    if (!documents_[i].empty() && i % 4 != 1) {
      EXPECT_FALSE(seen.contains(documents_[i])) << i;
    }
}

TEST_F(Streams, StopAndResumeAt50RandomPointsGivesTheSameTokens) {
  const std::string lines = to_json_lines(documents_);
  const TemporaryFolder mixed;
  const size_t cut = lines.find('\n', lines.size() / 2) + 1;
  mixed.write("1.jsonl", lines.substr(0, cut));
  mixed.write("2.jsonl.gz", gzip(lines.substr(cut)));
  const Rows expected = expected_samples(documents_, kStreams, 8 * 120);
  std::mt19937_64 random(7);
  const auto pick = [&](std::vector<int64_t> values) { return values[random() % values.size()]; };
  for (int trial = 0; trial < 50; ++trial) {
    const fs::path path = trial % 3 == 0 ? mixed.path() : path_;
    const int64_t stop = static_cast<int64_t>(random() % 100);
    const int64_t before = pick({1, 2, 4, 8});
    const int64_t after = pick({1, 2, 4, 8});
    auto first = make_loaders({.path = path, .ranks = before, .batch = 8 / before, .num_workers = pick({0, 1, 2, 5})});
    Rows rows = read_global(first, stop);
    const LoaderState state = merged_state(first);
    first.clear();
    auto second = make_loaders({.path = path, .ranks = after, .batch = 8 / after, .num_workers = pick({0, 1, 2, 5})});
    for (auto& loader : second) loader->load(state);
    for (auto& row : read_global(second, 120 - stop)) rows.push_back(std::move(row));
    EXPECT_EQ(rows, expected) << "stopped after " << stop << " steps, " << before << " -> " << after << " ranks";
  }
}

TEST_F(Streams, ResumeInTheMiddleOfARoundGoesOnWithTheNextStream) {
  const Rows expected = expected_samples(documents_, kStreams, 96);
  auto first = make_loader({.path = path_, .batch = 3});
  Rows rows = read_batches(*first, 15);  // 45 samples: 13 of the second round
  auto second = make_loader({.path = path_, .batch = 17});
  second->load(first->state());
  for (auto& row : read_batches(*second, 3)) rows.push_back(std::move(row));
  EXPECT_EQ(rows, expected);
}

TEST_F(Streams, ResumeOnAPlainFileDoesNotReadWhatLiesBefore) {
  std::string lines = to_json_lines(make_documents(20'000));
  const auto path = folder_.write("long/data.jsonl", lines);
  const CorpusOptions corpus{.name = "test", .path = path, .streams = kStreams, .max_record_bytes = 20'000};
  const LoaderOptions options{.batch = 32, .packing = {.seq_len = kSeqLen}};
  Loader first(corpus, encode_bytes, options);
  const auto entrance = [&] {
    int64_t least = std::numeric_limits<int64_t>::max();
    const LoaderState state = first.state();
    if (state.sources[0].positions.size() < kStreams) return int64_t{0};  // some have not begun
    for (const auto& [stream, position] : state.sources[0].positions) least = std::min(least, position.entrance.offset);
    return least;
  };
  while (entrance() < 300'000) first.next();
  const LoaderState state = first.state();
  const int64_t damage_end = entrance() - 1;  // the line end before it stays
  const Rows expected = read_batches(first, 20);

  // Whoever reads this meets a record that is too long. The first block is left as it is: it is read at every start.
  const int64_t damage_begin = RecordSource(path, {}).read(1024)->entrance().offset;
  ASSERT_LT(damage_begin + 50'000, damage_end);
  for (int64_t i = damage_begin; i < damage_end; ++i) lines[static_cast<size_t>(i)] = 'x';
  folder_.write("long/data.jsonl", lines);
  Loader second(corpus, encode_bytes, options);
  EXPECT_NE(error_of([&] { read_batches(second, 1000); }).find("is longer than"), std::string::npos);
  second.load(state);
  EXPECT_EQ(read_batches(second, 20), expected);
}

TEST_F(Streams, FilesAreNotOpenedBeforeTheirRecordsAreNeeded) {
  folder_.write("data_2.jsonl.gz", "damaged");
  auto loader = make_loader({.path = folder_.path()});
  EXPECT_EQ(read_batches(*loader, 20), expected_samples(documents_, kStreams, 160));
  EXPECT_NE(error_of([&] { read_batches(*loader, 1000); }).find("data_2.jsonl.gz is not valid gzip data"),
            std::string::npos);
}

TEST_F(Streams, CompressedFilesGiveTheSameSamples) {
  const std::string lines = to_json_lines(documents_);
  const Rows expected = expected_samples(documents_, kStreams, 1600);
  for (const auto& path :
       {folder_.write("x/data.jsonl.gz", gzip(lines)), folder_.write("y/data.jsonl.zst", zstd(lines))})
    EXPECT_EQ(read_batches(*make_loader({.path = path, .num_workers = 2}), 200), expected);
}

TEST(StreamsState, Of256StreamsIsUnder64KilobytesAtTheLargestNumbers) {
  LoaderState state{.streams = 256, .seq_len = 8192, .turns = {}, .sources = {{.fingerprint = "0123456789abcdef"}}};
  constexpr int64_t kLarge = int64_t{1} << 50;
  for (int64_t stream = 0; stream < 256; ++stream) {
    state.turns[stream] = kLarge;
    state.sources[0].positions[stream] = {
        .epoch = kLarge,
        .samples = kLarge,
        .record = kLarge,
        .token = kLarge,
        .entrance = {.record = kLarge, .file = kLarge, .offset = kLarge, .line = kLarge}};
  }
  const std::string json = to_json(state);
  EXPECT_LT(json.size(), 64 << 10);
  EXPECT_EQ(loader_state_from_json(json), state);
}

TEST_F(Streams, StateAfterARealRunIsSmall) {
  auto loader = make_loader({.path = path_, .streams = 256});
  read_batches(*loader, 500);
  ASSERT_EQ(loader->state().sources[0].positions.size(), 256);
  EXPECT_LT(to_json(loader->state()).size(), 16 << 10);
}

TEST_F(Streams, StateOfAnotherRunIsRefusedWithASentence) {
  auto loader = make_loader({.path = path_, .ranks = 2}, 0);
  const auto refusal = [&](LoaderState state) { return error_of([&] { loader->load(state); }); };
  const LoaderState state = loader->state();
  LoaderState other = state;
  other.streams = 64;
  EXPECT_EQ(refusal(other),
            "The saved data position has 64 data streams, this run has 32. Set training.data_streams = 64.");
  other = state;
  other.seq_len = 99;
  EXPECT_EQ(refusal(other),
            "The saved data position is for training.seq_len = 99, this run has 50. Use 99, or start the data from the "
            "beginning.");
  other = state;
  other.sources[0].fingerprint = "0";
  EXPECT_NE(refusal(other).find("names or sizes differ. Restore them, or start the data from the beginning."),
            std::string::npos);
  other = state;
  other.turns.erase(4);
  EXPECT_EQ(refusal(other), "The saved data position lacks stream 4. Merge the states of all ranks before loading.");
  other = state;
  other.sources[0].positions[4] = {.record = 5};
  EXPECT_EQ(refusal(other),
            "The saved data position of stream 4 is damaged: record 5, token 0. Use another checkpoint.");
  EXPECT_EQ(loader->state(), state);
  other = state;
  other.sources[0].positions[4] = {.record = 4, .token = 1'000'000};
  loader->load(other);
  EXPECT_NE(error_of([&] { read_batches(*loader, 1); }).find("Use the tokenizer and the data of the saved run."),
            std::string::npos);
}

TEST_F(Streams, DamagedOrMixedStatesHaveASentence) {
  for (const char* json : {"{}", "[1]", R"({"version":1,"streams":1})",
                           R"({"version":1,"streams":1,"seq_len":1,"fingerprint":"","positions":[[1,2]]})"})
    EXPECT_NE(error_of([&] { loader_state_from_json(json); }).find("The saved data position is damaged"),
              std::string::npos)
        << json;
  for (const std::string number : {"\"x\"", "1.5", "-1.7e+20"}) {
    EXPECT_EQ(error_of([&] { loader_state_from_json(R"({"version":1,"streams":)" + number + "}"); }),
              "The saved data position has " + number + " where an integer belongs. Use another checkpoint.");
  }
  EXPECT_EQ(error_of([] { loader_state_from_json(""); }),
            "The saved data position is not valid JSON (at byte 1). Use another checkpoint.");
  EXPECT_EQ(error_of([] { loader_state_from_json("{\"version\":" + std::string(1'000'000, '[')); }),
            "The saved data position nests deeper than 64 arrays and objects. Use another checkpoint.");
  EXPECT_EQ(error_of([] { loader_state_from_json(R"({"version":4})"); }),
            "The saved data position has version 4, but only versions 1 to 3 are known.");
  const LoaderState other{.streams = 4, .seq_len = 7, .turns = {}, .sources = {}};
  EXPECT_NE(error_of([&] { merge({other, make_loader({.path = path_})->state()}); }).find("of different runs"),
            std::string::npos);
}

TEST_F(Streams, FewerRecordsThanStreamsUseTheLargestPowerOfTwo) {
  const auto few = make_documents(13, 9);
  const auto path = folder_.write("few/data.jsonl", to_json_lines(few));
  auto loader = make_loader({.path = path, .streams = 256});
  EXPECT_EQ(loader->streams(), 8);
  EXPECT_EQ(read_batches(*loader, 50), expected_samples(few, 8, 400));
  auto loaders = make_loaders({.path = path, .ranks = 4, .batch = 2, .streams = 256});
  EXPECT_EQ(read_global(loaders, 50), expected_samples(few, 8, 400));
  EXPECT_EQ(error_of([&] { make_loader({.path = path, .ranks = 16, .streams = 256}); }),
            "Dataset test has 13 records, enough for 8 data streams, but 16 data-parallel ranks need the same number "
            "of streams each. Use more data or fewer ranks.");
}

TEST_F(Streams, ThreeRanksReadTheSamplesOfOne) {
  auto one = make_loaders({.path = path_, .ranks = 1, .batch = 6, .streams = 12});
  auto three = make_loaders({.path = path_, .ranks = 3, .batch = 2, .streams = 12});
  EXPECT_EQ(read_global(three, 20), read_global(one, 20));
}

TEST_F(Streams, StreamsAndRanksAreChecked) {
  for (const int64_t streams : {0, 1 << 17})
    EXPECT_EQ(error_of([&] { make_loader({.path = path_, .streams = streams}); }),
              fmt::format("training.data_streams = {} is not a number from 1 to 65536. Use 256.", streams));
  EXPECT_EQ(error_of([&] { make_loader({.path = path_, .ranks = 3}); }),
            "training.data_streams = 32 cannot be shared evenly by 3 data-parallel ranks. Use a multiple of the "
            "number of ranks.");
}

// The tokens of all streams, each cut after its last whole sample (or not), in order of (round, stream).
Rows expected_finite(const std::vector<std::string>& documents, bool keep_remainder) {
  std::vector<Rows> per_stream(kStreams);
  for (size_t s = 0; s < kStreams; ++s) {
    std::vector<int64_t> tokens;
    for (size_t d = s; d < documents.size(); d += kStreams)
      for (const int32_t token : encode_bytes(documents[d])) tokens.push_back(token);
    for (size_t i = 0; i < tokens.size(); i += kSeqLen + 1) {
      const size_t end = std::min(i + kSeqLen + 1, tokens.size());
      if (end - i == kSeqLen + 1 || (keep_remainder && end - i >= 2))
        per_stream[s].emplace_back(tokens.begin() + static_cast<ptrdiff_t>(i),
                                   tokens.begin() + static_cast<ptrdiff_t>(end));
    }
  }
  Rows rows;
  for (size_t round = 0, left = 1; left > 0; ++round) {
    left = 0;
    for (const Rows& stream : per_stream)
      if (round < stream.size()) {
        rows.push_back(stream[round]);
        ++left;
      }
  }
  return rows;
}

TEST_F(Streams, FiniteDataEndsAndDropsTheRemainders) {
  auto loader = make_loader({.path = path_, .infinite = false});
  EXPECT_EQ(read_batches(*loader, 1'000'000), expected_finite(documents_, false));
  EXPECT_FALSE(loader->next().has_value());
  loader->rewind();
  EXPECT_EQ(read_batches(*loader, 1'000'000), expected_finite(documents_, false));
}

TEST_F(Streams, KeptRemaindersLoseNoLabel) {
  const Rows expected = expected_finite(documents_, true);
  auto loader = make_loader({.path = path_, .num_workers = 3, .infinite = false, .keep_remainder = true});
  size_t row = 0;
  while (const auto batch = loader->next()) {
    for (int64_t i = 0; i < batch->batch && row < expected.size(); ++i, ++row) {
      for (size_t j = 0; j < kSeqLen; ++j) {
        const size_t at = static_cast<size_t>(i) * kSeqLen + j;
        const bool real = j + 1 < expected[row].size();
        ASSERT_EQ(batch->inputs[at], real ? expected[row][j] : 0);
        ASSERT_EQ(batch->labels[at], real ? expected[row][j + 1] : kIgnoreIndex);
      }
    }
  }
  EXPECT_EQ(row, expected.size());
}

TEST_F(Streams, LastBatchOfFiniteDataIsFilledWithIgnoredRows) {
  const size_t samples = expected_finite(documents_, false).size();
  const auto batch_size = static_cast<int64_t>(samples - 1);
  auto loader = make_loader({.path = path_, .batch = batch_size, .infinite = false});
  ASSERT_TRUE(loader->next().has_value());
  const auto last = loader->next();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->labels.size(), static_cast<size_t>(batch_size * kSeqLen));
  EXPECT_NE(last->labels[0], kIgnoreIndex);
  EXPECT_TRUE(
      std::all_of(last->labels.begin() + kSeqLen, last->labels.end(), [](auto x) { return x == kIgnoreIndex; }));
  EXPECT_FALSE(loader->next().has_value());
}

TEST_F(Streams, FiniteDataResumesOnAnotherNumberOfRanks) {
  const Rows expected = expected_finite(documents_, false);
  auto first = make_loader({.path = path_, .batch = 7, .infinite = false});
  Rows rows = read_batches(*first, static_cast<int64_t>(expected.size() / 7) - 2);
  const LoaderState state = first->state();
  std::multiset<std::vector<int64_t>> rest;
  for (int64_t rank = 0; rank < 4; ++rank) {
    auto loader = make_loader({.path = path_, .ranks = 4, .infinite = false}, rank);
    loader->load(state);
    for (auto& row : read_batches(*loader, 1'000'000)) rest.insert(std::move(row));
  }
  const auto remaining = expected.begin() + static_cast<ptrdiff_t>(rows.size());
  EXPECT_EQ(rest, (std::multiset<std::vector<int64_t>>(remaining, expected.end())));
}

TEST_F(Streams, BadRecordsStopOrAreCountedAndKeepTheirPlaceInTheDealing) {
  std::string lines;
  std::vector<std::string> good;
  for (size_t i = 0; i < documents_.size(); ++i) {
    const bool bad = i % 10 == 3;
    lines += bad ? "{\"text\": 3}\n" : to_json_lines({documents_[i]});
    good.push_back(bad ? "" : documents_[i]);
  }
  const auto path = folder_.write("bad/data.jsonl", lines);
  CorpusOptions corpus{.name = "test", .path = path, .streams = kStreams};
  const LoaderOptions options{.batch = 8, .packing = {.seq_len = kSeqLen, .infinite = false, .keep_remainder = true}};
  const Encoder bare = [](std::string_view text) { return std::vector<int32_t>(text.begin(), text.end()); };
  // Line 34 before line 4: stream 1 needs its second document before it is the turn of stream 3.
  EXPECT_EQ(error_of([&] { Loader(corpus, bare, options).next(); }),
            fmt::format("{}:34: field \"text\" is a number, but must be a string. Repair or remove the line, or set "
                        "training.skip_bad_records to leave such records out.",
                        path.string()));
  corpus.skip_bad_records = true;
  Loader skipping(corpus, bare, options);
  const auto clean = folder_.write("clean/data.jsonl", to_json_lines(good));
  Loader reference({.name = "test", .path = clean, .streams = kStreams}, bare, options);
  EXPECT_EQ(read_batches(skipping, 1'000'000), read_batches(reference, 1'000'000));
  EXPECT_EQ(skipping.bad_records(), 40);
}

TEST_F(Streams, StreamWithoutAnyTokenIsAnErrorAndNotAHang) {
  const auto path = folder_.write("bad/data.jsonl", "{\"text\":\"a\"}\n{\"text\":1}\n{\"text\":\"b\"}\n7\n");
  Loader loader({.name = "test", .path = path, .skip_bad_records = true, .streams = 2}, encode_bytes, {.batch = 2});
  EXPECT_EQ(error_of([&] { loader.next(); }),
            "Dataset test: all records of data stream 1 are bad or empty, so it has no tokens to train on. Repair the "
            "data or use fewer training.data_streams.");
}

TEST_F(Streams, DataWithoutRecordsHasASentence) {
  const auto path = folder_.write("blank/data.jsonl", "\n\n  \n");
  EXPECT_EQ(error_of([&] { make_loader({.path = path}); }),
            fmt::format("Dataset test at {} has no records. Name a file or folder that has some.", path.string()));
}

}  // namespace
}  // namespace titanium::data::testing
