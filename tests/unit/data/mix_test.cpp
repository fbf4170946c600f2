// Mixes and shuffles through the loader: the samples follow from data and
// options alone.
#include "tests/support/data_files.h"

namespace titanium::data::testing {
namespace {

constexpr int64_t kStreams = 16;
constexpr int64_t kSeqLen = 50;
constexpr int64_t kBatch = 8;

std::string lines_of(char letter, int64_t count, uint64_t seed) {
  std::vector<std::string> documents = make_documents(count, seed);
  for (std::string& text : documents) text.insert(text.begin(), letter);
  return to_json_lines(documents);
}

struct Mix {
  std::vector<MixEntry> entries;
  std::vector<MixturePiece> weights;
  int64_t workers = 0;
};

class MixTest : public ::testing::Test {
 protected:
  CorpusOptions corpus(const std::string& name) const {
    return {.name = name,
            .path = folder_.path() / (name + ".jsonl"),
            .streams = kStreams,
            .cache_bytes = 1 << 18,
            .in_mix = true};
  }

  Mix three() const {
    return {.entries = {{.corpus = corpus("a")}, {.corpus = corpus("b")}, {.corpus = corpus("c")}},
            .weights = {{.first = 0, .weights = {5, 3, 1}}, {.first = 200, .weights = {1, 3, 5}}}};
  }

  static std::vector<std::unique_ptr<Loader>> make(Mix mix, int64_t ranks = 1) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (MixEntry& entry : mix.entries) {
        entry.corpus.rank = rank;
        entry.corpus.ranks = ranks;
      }
      loaders.push_back(std::make_unique<Loader>(
          mix.entries, mix.weights, encode_bytes,
          LoaderOptions{.batch = kBatch / ranks, .packing = {.seq_len = kSeqLen}, .num_workers = mix.workers}));
    }
    return loaders;
  }

  static Rows read(std::vector<std::unique_ptr<Loader>>& loaders, int64_t steps) {
    std::vector<Rows> per_rank;
    for (auto& loader : loaders) per_rank.push_back(read_batches(*loader, steps));
    Rows global;
    for (size_t i = 0; i < per_rank[0].size(); ++i)
      for (const Rows& rows : per_rank) global.push_back(rows.at(i));
    return global;
  }

  static LoaderState state_of(const std::vector<std::unique_ptr<Loader>>& loaders) {
    std::vector<LoaderState> states;
    for (const auto& loader : loaders) states.push_back(loader_state_from_json(to_json(loader->state())));
    return merge(states);
  }

  // Reads `steps` in pieces of 15, each on another number of readers and
  // threads, each resumed from the one before.
  static Rows read_with_stops(Mix mix, int64_t steps) {
    Rows rows;
    std::optional<LoaderState> state;
    for (int64_t piece = 0; piece * 15 < steps; ++piece) {
      mix.workers = piece % 3;
      auto loaders = make(mix, int64_t{1} << (piece % 3));
      for (auto& loader : loaders)
        if (state) loader->load(*state);
      for (auto& row : read(loaders, 15)) rows.push_back(std::move(row));
      state = state_of(loaders);
    }
    return rows;
  }

  TemporaryFolder folder_;
  fs::path a_ = folder_.write("a.jsonl", lines_of('A', 400, 1));
  fs::path b_ = folder_.write("b.jsonl", lines_of('B', 90, 2));
  fs::path c_ = folder_.write("c.jsonl", lines_of('C', 5, 3));  // fewer than streams
};

// By definition: the source of each sample from the mixture, its samples from a
// loader of that source alone.
TEST_F(MixTest, SamplesAreThoseOfTheirSourcesInTheOrderOfTheMixture) {
  const Mix mix = three();
  const Mixture mixture(mix.weights, kStreams);
  std::vector<std::map<int64_t, std::vector<std::vector<int64_t>>>> samples(3);
  for (size_t k = 0; k < 2; ++k) {  // sources with at least as many records as streams
    CorpusOptions alone = mix.entries[k].corpus;
    alone.in_mix = false;
    Loader loader(alone, encode_bytes, {.batch = kStreams, .packing = {.seq_len = kSeqLen}});
    const Rows rows = read_batches(loader, 60);
    for (size_t i = 0; i < rows.size(); ++i) samples[k][static_cast<int64_t>(i) % kStreams].push_back(rows[i]);
  }
  auto loaders = make(mix);
  const Rows rows = read(loaders, 60);
  std::vector<std::map<int64_t, size_t>> next(3);
  int64_t compared = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(rows.size()); ++i) {
    const int64_t stream = i % kStreams;
    const size_t source = mixture.choose(i / kStreams, stream, {false, false, false});
    if (source == 2) continue;
    ASSERT_EQ(rows[static_cast<size_t>(i)], samples[source][stream].at(next[source][stream]++)) << i;
    ++compared;
  }
  EXPECT_GT(compared, 300);
}

TEST_F(MixTest, SamplesAreTheSameOn1And2And4ReadersAndAfterEveryStop) {
  auto whole = make(three());
  const Rows expected = read(whole, 90);
  EXPECT_EQ(read_with_stops(three(), 90), expected);
  for (const int64_t ranks : {2, 4}) {
    auto loaders = make(three(), ranks);
    EXPECT_EQ(read(loaders, 90), expected) << ranks;
  }
}

TEST_F(MixTest, ShuffledMixesToo) {
  Mix mix = three();
  for (MixEntry& entry : mix.entries) {
    entry.corpus.shuffle = true;
    entry.corpus.shuffle_window = 64;
  }
  auto whole = make(mix);
  const Rows expected = read(whole, 90);
  EXPECT_EQ(read_with_stops(mix, 90), expected);
  auto plain = make(three());
  EXPECT_NE(read(plain, 90), expected);
}

TEST_F(MixTest, ShuffledEpochsHaveEachRecordOnceInAnotherOrder) {
  const auto path = folder_.write("numbers.jsonl", [] {
    std::string lines;
    for (int i = 0; i < 1000; ++i) lines += fmt::format("{{\"text\":\"{:06}\"}}\n", i);
    return lines;
  }());
  const auto epochs = [&](const CorpusOptions& corpus) {
    // Each document is one sample of the only stream, so an epoch is 1,000 samples.
    Loader loader(corpus, [](std::string_view text) { return std::vector<int32_t>(text.begin(), text.end()); },
                  {.batch = 100, .packing = {.seq_len = 5}});
    std::vector<Rows> found;
    for (int epoch = 0; epoch < 2; ++epoch) found.push_back(read_batches(loader, 10));
    return found;
  };
  const CorpusOptions plain{.name = "n", .path = path, .streams = 1};
  CorpusOptions shuffled = plain;
  shuffled.shuffle = true;
  shuffled.shuffle_window = 128;  // 1,000 records end inside a window
  const auto expected = epochs(plain), found = epochs(shuffled);
  for (const Rows& rows : found) {
    EXPECT_EQ(std::multiset(rows.begin(), rows.end()), std::multiset(expected[0].begin(), expected[0].end()));
    EXPECT_NE(rows, expected[0]);
  }
  EXPECT_NE(found[0], found[1]);
  shuffled.shuffle_seed = 43;
  EXPECT_NE(epochs(shuffled)[0], found[0]);
}

TEST_F(MixTest, AShuffleOfFewRecordsLeavesNoStreamWithoutAny) {
  folder_.write("few.jsonl", lines_of('f', 20, 3));
  CorpusOptions few = corpus("few");  // 20 records for 16 streams, far fewer than a window
  few.shuffle = true;
  for (int64_t seed = 0; seed < 20; ++seed) {
    few.shuffle_seed = seed;
    Corpus shuffled(few, encode_bytes);
    std::set<std::vector<int32_t>> seen;
    for (int64_t place = 0; place < 20; ++place) seen.insert(shuffled.document(place).value().tokens);
    EXPECT_EQ(seen.size(), 20) << seed;
    EXPECT_FALSE(shuffled.document(20)) << seed;
  }
}

TEST_F(MixTest, PositionsInsideAWindowThatIsNotFullGoOnThere) {
  Mix mix{.entries = {{.corpus = corpus("a")}}, .weights = {{.first = 0, .weights = {1}}}};
  mix.entries[0].corpus.shuffle = true;
  auto loaders = make(mix);
  LoaderState state = state_of(loaders);
  EXPECT_EQ(state.sources[0].order, "shuffled with seed 42");
  state.sources[0].order = "shuffled with seed 42 in windows of 16384 records";
  loaders[0]->load(state);
  EXPECT_EQ(loaders[0]->state().sources[0].order, state.sources[0].order);
  read(loaders, 3);
  state.sources[0].order = "shuffled with seed 42 in windows of 999 records";
  EXPECT_THROW(loaders[0]->load(state), Error);
}

TEST_F(MixTest, SourcesAreDroppedAfterTheirEpochsAndTheRunGoesOn) {
  Mix mix = three();
  for (const size_t k : {1, 2}) mix.entries[k].corpus.epochs = 2;
  auto whole = make(mix);
  const Rows expected = read(whole, 150);
  ASSERT_EQ(expected.size(), 150U * kBatch);
  const auto counts = whole[0]->samples_by_source();
  int64_t total = 0;
  for (const auto& [name, samples] : counts) total += samples;
  EXPECT_EQ(total, 150 * kBatch);
  auto more = make(mix);
  read(more, 220);
  EXPECT_EQ(more[0]->samples_by_source()[1].second,
            counts[1].second);  // has ended everywhere
  EXPECT_EQ(read_with_stops(mix, 150), expected);
}

TEST_F(MixTest, StopsWhereASourceThatMustNotEndDoes) {
  Mix mix = three();
  mix.entries[1].corpus.epochs = 1;
  mix.entries[1].at_end = AtEnd::kStop;
  auto loaders = make(mix);
  const Rows rows = read(loaders, 1000);
  EXPECT_GT(rows.size(), 20U);
  EXPECT_LT(rows.size(), 1000U);
  EXPECT_FALSE(loaders[0]->next().has_value());
}

TEST_F(MixTest, WeightsMayChangeAndSourcesComeAndGoAtAResume) {
  auto first = make(three());
  read(first, 30);
  const LoaderState state = state_of(first);
  const auto counts = first[0]->samples_by_source();
  Mix changed = three();
  folder_.write("d.jsonl", lines_of('D', 60, 4));
  changed.entries[1] = {.corpus = corpus("d")};
  changed.weights = {{.weights = {1, 1, 0}}};
  auto second = make(changed, 2);
  for (auto& loader : second) loader->load(state);
  const Rows rows = read(second, 10);
  int64_t a = 0, d = 0, c = 0;
  for (const auto& loader : second) {
    a += loader->samples_by_source()[0].second;
    d += loader->samples_by_source()[1].second;
    c += loader->samples_by_source()[2].second;
  }
  auto alone = make(changed), four = make(changed, 4);
  for (auto* loaders : {&alone, &four})
    for (auto& loader : *loaders) loader->load(state);
  const Rows expected = read(alone, 40);
  EXPECT_EQ(Rows(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(rows.size())), rows);
  EXPECT_EQ(read(four, 40), expected);
  EXPECT_NEAR(static_cast<double>(a - counts[0].second), 40, 1);
  EXPECT_NEAR(static_cast<double>(d), 40, 1);
  EXPECT_EQ(c, counts[2].second);
}

TEST_F(MixTest, StatesOfOtherOrdersAndFilesAreRefused) {
  auto loaders = make(three());
  const LoaderState state = state_of(loaders);
  Mix shuffled = three();
  shuffled.entries[0].corpus.shuffle = true;
  shuffled.entries[0].corpus.shuffle_window = 128;
  auto other = make(shuffled);
  EXPECT_EQ(error_of([&] { other[0]->load(state); }),
            "The saved data position of dataset a is not shuffled, and this "
            "run has it shuffled with seed 42 in windows "
            "of 128 records. Set training.shuffle, training.shuffle_seed and "
            "training.shuffle_window as they were.");
  LoaderState damaged = state;
  damaged.sources[1].fingerprint = "0";
  EXPECT_NE(error_of([&] { loaders[0]->load(damaged); }).find("The files of dataset b at "), std::string::npos);
}

TEST_F(MixTest, PositionsOfRunsFromBeforeMixesGoOnWithTheSameSamples) {
  const CorpusOptions corpus{.name = "a", .path = a_, .streams = kStreams};
  const LoaderOptions options{.batch = kBatch, .packing = {.seq_len = kSeqLen}};
  Loader first(corpus, encode_bytes, options);
  read_batches(first, 25);
  const LoaderState state = first.state();
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [stream, at] : state.sources[0].positions)
    rows.push_back({stream, at.epoch, at.samples, at.record, at.token, at.entrance.record, at.entrance.file,
                    at.entrance.offset, at.entrance.line});
  const nlohmann::json version_1 = {{"version", 1},
                                    {"streams", kStreams},
                                    {"seq_len", kSeqLen},
                                    {"fingerprint", state.sources[0].fingerprint},
                                    {"positions", rows}};
  Loader second(corpus, encode_bytes, options);
  second.load(loader_state_from_json(version_1.dump()));
  EXPECT_EQ(read_batches(second, 40), read_batches(first, 40));
}

TEST_F(MixTest, AHundredSourcesKeepOneSmallState) {
  Mix mix{.entries = {}, .weights = {{.weights = {}}}};
  for (int i = 0; i < 100; ++i) {
    folder_.write(fmt::format("s{}.jsonl", i), lines_of('S', 20, static_cast<uint64_t>(i) + 9));
    mix.entries.push_back({.corpus = corpus(fmt::format("s{}", i))});
    mix.weights[0].weights.push_back(1 + i % 7);
  }
  auto whole = make(mix);
  const Rows expected = read(whole, 60);
  EXPECT_EQ(read_with_stops(mix, 60), expected);
  EXPECT_LT(to_json(whole[0]->state()).size(), 64U << 10);
}

}  // namespace
}  // namespace titanium::data::testing
