// Threads of the loader: bounded work ahead, errors, and an end at any time.
#include "titanium/data/loader.h"

#include "tests/support/data_files.h"

namespace titanium::data::testing {
namespace {

class LoaderThreads : public ::testing::Test {
 protected:
  std::unique_ptr<Loader> make(Encoder encoder, int64_t num_workers, int64_t prefetch_factor = 2) const {
    return std::make_unique<Loader>(
        CorpusOptions{.name = "test", .path = path_, .streams = 16}, std::move(encoder),
        LoaderOptions{
            .batch = 4, .packing = {.seq_len = 64}, .num_workers = num_workers, .prefetch_factor = prefetch_factor});
  }

  TemporaryFolder folder_;
  std::vector<std::string> documents_ = make_documents(300);
  fs::path path_ = folder_.write("data.jsonl", to_json_lines(documents_));
};

TEST_F(LoaderThreads, OrderDoesNotDependOnTheNumberOfThreads) {
  const Rows expected = read_batches(*make(encode_bytes, 0), 100);
  for (const int64_t workers : {1, 2, 3, 7, 16, 40}) {
    EXPECT_EQ(read_batches(*make(encode_bytes, workers, 1), 100), expected) << workers;
    // Threads that come to their turns at different times.
    const Encoder uneven = [](std::string_view text) {
      std::this_thread::sleep_for(std::chrono::microseconds(text.size() % 7 * 30));
      return encode_bytes(text);
    };
    EXPECT_EQ(read_batches(*make(uneven, workers), 100), expected) << workers;
  }
}

TEST_F(LoaderThreads, EndsCleanlyAtAnyTime) {
  for (int trial = 0; trial < 60; ++trial) {
    auto loader = make(encode_bytes, trial % 5);
    read_batches(*loader, trial % 7);
    if (trial % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(trial * 20));
    if (trial % 4 == 0) loader->rewind();
    if (trial % 6 == 0) loader->load(loader->state());
  }
}

TEST_F(LoaderThreads, EndsWhileAThreadSearchesABigArchive) {
  // A short document and many bad records: the first sample takes a hundred thousand passes over the archive.
  constexpr int64_t kPasses = 100'000, kTokensOfAPass = 3;
  std::string lines = "{\"text\":\"x\"}\n";
  while (lines.size() < (4 << 20)) lines += "{\"text\":1}\n";
  const auto path = folder_.write("big/data.jsonl.gz", gzip(lines));
  std::atomic<int64_t> passes = 0;
  const Encoder counting = [&](std::string_view text) {
    ++passes;
    return encode_bytes(text);
  };
  {
    const Loader loader({.name = "test", .path = path, .skip_bad_records = true, .streams = 1}, counting,
                        {.batch = 1, .packing = {.seq_len = kPasses * kTokensOfAPass}, .num_workers = 2});
    while (loader.bad_records() == 0) std::this_thread::yield();
  }
  EXPECT_GT(passes, 0);
  EXPECT_LT(passes, kPasses);
}

TEST_F(LoaderThreads, WorkAheadIsBounded) {
  std::atomic<int64_t> tokens = 0;
  const Encoder counting = [&](std::string_view text) {
    auto result = encode_bytes(text);
    tokens += static_cast<int64_t>(result.size());
    return result;
  };
  auto loader = make(counting, 2, 3);
  int64_t before = -1;
  while (before != tokens) {  // until the threads wait for the queues
    before = tokens;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  // 2 threads x (3 batches + the sample in the making), and the documents that the 16 streams have open.
  EXPECT_LE(tokens, 2 * (3 * 4 + 1) * 65 + 16 * 710);
}

TEST_F(LoaderThreads, StateCountsOnlyWhatWasDelivered) {
  auto loader = make(encode_bytes, 4, 8);
  read_batches(*loader, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int64_t samples = 0;
  const LoaderState state = loader->state();
  for (const auto& [stream, position] : state.sources[0].positions) samples += position.samples;
  EXPECT_EQ(samples, 12);
}

TEST_F(LoaderThreads, ABatchMayHoldSeveralSamplesOfAStream) {
  const auto make_narrow = [&] {
    return std::make_unique<Loader>(CorpusOptions{.name = "test", .path = path_, .streams = 2}, encode_bytes,
                                    LoaderOptions{.batch = 6, .packing = {.seq_len = 64}, .num_workers = 2});
  };
  const Rows whole = read_batches(*make_narrow(), 8);
  const auto first = make_narrow(), second = make_narrow();
  Rows rows = read_batches(*first, 3);
  second->load(first->state());
  const Rows rest = read_batches(*second, 5);
  rows.insert(rows.end(), rest.begin(), rest.end());
  EXPECT_EQ(rows, whole);
}

TEST_F(LoaderThreads, ErrorOfAThreadReachesTheCallerAtItsPlaceAndAgain) {
  const Rows expected = read_batches(*make(encode_bytes, 1), 1000);
  for (const int64_t workers : {1, 3}) {
    auto loader = make(
        [](std::string_view text) {
          if (text.starts_with("document 200 ")) throw Error("the encoder fails");
          return encode_bytes(text);
        },
        workers);
    Rows rows;
    std::string message;
    while (message.empty()) message = error_of([&] { append_rows(loader->next().value(), rows); });
    EXPECT_NE(message.find("data.jsonl:201: this record cannot be tokenized: the encoder fails"), std::string::npos);
    EXPECT_EQ(error_of([&] { loader->next(); }), message);
    ASSERT_GT(rows.size(), 50);
    ASSERT_LT(rows.size(), expected.size());
    EXPECT_EQ(rows, Rows(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(rows.size())));
    int64_t samples = 0;
    const LoaderState state = loader->state();
    for (const auto& [stream, position] : state.sources[0].positions) samples += position.samples;
    EXPECT_EQ(samples, static_cast<int64_t>(rows.size()));
    loader->rewind();
    EXPECT_EQ(error_of([&] { loader->next(); }), "");
  }
}

TEST_F(LoaderThreads, WaitingIsMeasured) {
  std::atomic<bool> open = false;
  auto loader = make(
      [&](std::string_view text) {
        while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return encode_bytes(text);
      },
      1);
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    open = true;
  });
  loader->next();
  EXPECT_GT(loader->last_wait_seconds(), 0);
  bool lay_ready = false;  // sooner or later, when the thread has had time to get ahead
  for (int i = 0; i < 1000 && !lay_ready; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    loader->next();
    lay_ready = loader->last_wait_seconds() == 0;
  }
  EXPECT_TRUE(lay_ready);
}

TEST_F(LoaderThreads, ImpossibleOptionsHaveASentence) {
  const auto refusal = [&](const LoaderOptions& options) {
    return error_of([&] { Loader({.name = "test", .path = path_}, encode_bytes, options); });
  };
  EXPECT_EQ(refusal({.batch = 0}), "A batch of 0 samples is not possible. Use at least 1.");
  EXPECT_EQ(refusal({.packing = {.seq_len = 0}}), "training.seq_len = 0 must be at least 1.");
  EXPECT_EQ(refusal({.num_workers = -1}), "dataloader.num_workers = -1 must not be negative.");
  EXPECT_EQ(refusal({.prefetch_factor = 0}), "dataloader.prefetch_factor = 0 must be at least 1.");
}

}  // namespace
}  // namespace titanium::data::testing
