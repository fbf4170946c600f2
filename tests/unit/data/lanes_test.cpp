// What the passes of a lane keep open, and how they share its memory.
#include "titanium/data/lanes.h"

#include "tests/support/bytes_read.h"
#include "tests/support/data_files.h"

namespace titanium::data::testing {
namespace {

class LanesOfAShuffle : public ::testing::Test {
 protected:
  void SetUp() override {
    if (bytes_read() < 0) GTEST_SKIP() << "the kernel does not count what is read";
    std::string lines;  // of 1 KB
    for (int i = 0; i < 4000; ++i) lines += to_json_lines({fmt::format("{} {}", i, std::string(1000, 'x'))});
    size_ = static_cast<int64_t>(lines.size());
    corpus_.path = folder_.write("data.jsonl", lines);
  }

  TemporaryFolder folder_;
  int64_t size_ = 0;
  CorpusOptions corpus_{.name = "test",
                        .streams = 16,
                        .cache_bytes = 64 << 20,
                        .shuffle = true,
                        .striping = StripingChoice::kBlocks,
                        .most_lanes = 2,
                        .block_bytes = 64 << 10};
};

TEST_F(LanesOfAShuffle, PassesStayOpenAsLongAsStreamsReadFromThem) {
  Corpus corpus(corpus_, encode_bytes);
  ASSERT_EQ(corpus.striping().lanes, 2);
  const int64_t before = bytes_read();
  std::map<int64_t, std::weak_ptr<RecordSource>> sources;  // by pass
  for (int64_t turn = 0; turn < 20; ++turn) {
    for (int64_t stream = 0; stream < 16; stream += 2)  // those of the first lane, each in a pass of its own
      sources[stream / 2] = corpus.record(turn * 16 + stream, stream / 2).value().source;
  }
  EXPECT_LT(bytes_read() - before, 9 * size_ / 2);  // eight times half of it
  for (int64_t stream = 0; stream < 16; stream += 2) EXPECT_TRUE(corpus.record(stream, 9).has_value());
  for (const auto& [pass, source] : sources) EXPECT_TRUE(source.expired()) << pass;
}

TEST_F(LanesOfAShuffle, OnePassHasTheWholeCacheAndSeveralShareIt) {
  corpus_.shuffle_window = 3000;  // 1.5 MB in each lane, which has 2 MiB
  corpus_.cache_bytes = 4 << 20;
  Corpus corpus(corpus_, encode_bytes);
  const auto read_lane = [&](int64_t pass, int64_t first_stream) {
    const int64_t before = bytes_read();
    for (int64_t place = first_stream; corpus.record(place, pass).has_value();) {
      place += 2;
      if (place % 16 == 0) place += first_stream;
    }
    return static_cast<double>(bytes_read() - before) / static_cast<double>(size_);
  };
  EXPECT_LT(read_lane(0, 0), 0.65);
  EXPECT_LT(read_lane(1, 0), 0.65);  // nobody is left in the pass before
  EXPECT_GT(read_lane(2, 2), 1.0);   // here one stream is, and windows do not fit
}

}  // namespace
}  // namespace titanium::data::testing
