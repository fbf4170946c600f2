// Pictures with captions: samples of archives, canonical streams, and what cannot be used.
#include "titanium/data/image/image_loader.h"

#include "tests/support/data_files.h"
#include "tests/support/source_folder.h"
#include "titanium/base/log.h"
#include "titanium/data/document.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/data/image/decode.h"
#include "titanium/data/image/image_text.h"
#include "titanium/data/inspection.h"

namespace titanium::data::testing {
namespace {

// A picture in which every pixel depends on its number and place.
std::string make_png(int64_t width, int64_t height, int64_t number) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (const int64_t value : {x * 3 + number, y * 5 + number * 7, (x ^ y) + number})
        pixels.push_back(static_cast<uint8_t>(value));
  return encode_png(width, height, pixels);
}

std::string sample(int64_t number, int64_t width = 40, int64_t height = 24) {
  const std::string key = fmt::format("part/{:05}", number);
  return tar_member(key + ".png", make_png(width, height, number)) +
         tar_member(key + ".txt", fmt::format("picture {}", number));
}

std::string archive(int64_t first, int64_t count) {
  std::string bytes;
  for (int64_t i = first; i < first + count; ++i) bytes += sample(i, 40 + i % 9, 24 + i % 5);
  return bytes + tar_end();
}

// Length 4: how often the caption has been seen is not part of it.
std::vector<int32_t> encode_caption(std::string_view caption) {
  std::vector<int32_t> tokens(4, -1);
  for (size_t i = 0; i < std::min<size_t>(4, caption.size()); ++i)
    tokens[i] = static_cast<unsigned char>(caption[caption.size() - 1 - i]);
  return tokens;
}

struct Row {
  int64_t number;
  std::string name, caption;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> tokens;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_in(const ImageBatch& batch) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < batch.count; ++i) {
    const ImageBatch one = rows_of(batch, i, 1);
    rows.push_back({one.numbers[0], one.names[0], one.captions[0], one.pixels,
                    one.tokens.empty() ? std::vector<int32_t>() : one.tokens[0]});
  }
  return rows;
}

std::vector<Row> read(ImageLoader& loader, int64_t batches) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < batches; ++i) {
    const auto batch = loader.next();
    if (!batch) break;
    for (Row& row : rows_in(*batch)) rows.push_back(std::move(row));
  }
  return rows;
}

class Images : public ::testing::Test {
 protected:
  CorpusOptions corpus(int64_t rank = 0, int64_t ranks = 1) const {
    return {.name = "pictures", .path = folder_.path() / "set", .streams = 16, .rank = rank, .ranks = ranks};
  }
  static ImageLoaderOptions options(int64_t batch, int64_t workers = 2) {
    return {.batch = batch, .images = {.size = 16, .encoders = {encode_caption}}, .num_workers = workers};
  }
  void write_sets() const {
    folder_.write("set/a.tar", archive(0, 37));
    folder_.write("set/b.tar.gz", gzip(archive(37, 21)));
  }

  TemporaryFolder folder_;
};

// Samples of all ranks in the order of their numbers.
std::vector<Row> read_on(const std::function<CorpusOptions(int64_t, int64_t)>& corpus, const ImageLoaderOptions& whole,
                         int64_t ranks, int64_t batches, std::optional<LoaderState>& state) {
  std::vector<Row> rows;
  std::vector<LoaderState> states;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    ImageLoaderOptions share = whole;
    share.batch /= ranks;
    ImageLoader loader(corpus(rank, ranks), share);
    if (state) loader.load(*state);
    for (Row& row : read(loader, batches)) rows.push_back(std::move(row));
    states.push_back(loader_state_from_json(to_json(loader.state())));
  }
  state = merge(states);
  std::ranges::sort(rows, {}, &Row::number);
  return rows;
}

TEST_F(Images, AnyNumberOfRanksAndThreadsReadsTheSameSamplesAndGoesOnAfterAny) {
  write_sets();
  for (const bool shuffle : {false, true}) {
    const auto with = [&](int64_t rank, int64_t ranks) {
      CorpusOptions made = corpus(rank, ranks);
      made.shuffle = shuffle;
      made.shuffle_window = 32;
      return made;
    };
    std::optional<LoaderState> whole, parts;
    const auto expected = read_on(with, options(8, 1), 1, 30, whole);
    ASSERT_EQ(expected.size(), 240U);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(expected[i].number, static_cast<int64_t>(i));
    std::vector<Row> found;
    for (const int64_t ranks : {1, 4, 2})
      for (Row& row : read_on(with, options(8, ranks), ranks, 10, parts)) found.push_back(std::move(row));
    EXPECT_TRUE(found == expected) << shuffle;
    EXPECT_EQ(parts->turns, whole->turns);
  }
}

TEST_F(Images, ArchivesAreDealtAsBlocksWhereThatIsAskedFor) {
  for (int64_t i = 0; i < 12; ++i) folder_.write(fmt::format("set/{:02}.tar", i), archive(i * 10, 10));
  for (const bool shuffle : {false, true}) {
    const auto with = [&](int64_t rank, int64_t ranks) {
      CorpusOptions made = corpus(rank, ranks);
      made.striping = StripingChoice::kBlocks;
      made.shuffle = shuffle;
      made.shuffle_window = 32;
      return made;
    };
    std::optional<LoaderState> whole, parts;
    const auto expected = read_on(with, options(8, 1), 1, 30, whole);
    EXPECT_EQ(whole->sources[0].striping, (Striping{.lanes = 2, .block_bytes = 0}));
    std::set<std::string> names;  // of two passes
    for (const Row& row : expected) names.insert(row.name);
    EXPECT_EQ(names.size(), 120U);
    std::vector<Row> found;
    for (const int64_t ranks : {1, 4, 2})
      for (Row& row : read_on(with, options(8, ranks), ranks, 10, parts)) found.push_back(std::move(row));
    EXPECT_TRUE(found == expected) << shuffle;
  }
  CorpusOptions automatic = corpus();
  automatic.images = true;
  automatic.striping = StripingChoice::kAuto;
  EXPECT_EQ(Corpus(automatic, nullptr).striping(), Striping{});
}

TEST_F(Images, EveryEpochAndSeedHasItsOwnCrops) {
  write_sets();
  ImageLoader loader(corpus(), options(58));
  const auto first = read(loader, 1), second = read(loader, 1);
  int64_t alike = 0;
  for (const Row& row : first)
    for (const Row& later : second) alike += row.name == later.name && row.pixels == later.pixels ? 1 : 0;
  EXPECT_LT(alike, 20);  // of 58, whose squares have 5 to 17 places each
  loader.rewind();
  EXPECT_TRUE(read(loader, 1) == first);
  ImageLoaderOptions other = options(58);
  other.images.seed = 1;
  ImageLoader seeded(corpus(), other);
  const auto moved = read(seeded, 1);
  EXPECT_EQ(moved[0].name, first[0].name);
  EXPECT_FALSE(moved == first);
}

TEST_F(Images, CaptionsAreLeftOutForEachEncoderByItself) {
  write_sets();
  ImageLoaderOptions choices = options(16);
  choices.images.encoders = {encode_caption, encode_caption};
  choices.images.caption_dropout = 0.25;
  ImageLoader loader(corpus(), choices);
  int64_t counts[2] = {}, both = 0, rows = 0;
  for (int64_t i = 0; i < 125; ++i) {
    const ImageBatch batch = loader.next().value();
    for (size_t row = 0; row < 16; ++row, ++rows) {
      for (const size_t k : {0, 1}) {
        const auto begin = batch.tokens[k].begin() + static_cast<int64_t>(row) * 4;
        const std::vector<int32_t> tokens(begin, begin + 4);
        EXPECT_EQ(tokens, encode_caption(batch.left_out[k][row] ? "" : batch.captions[row]));
        EXPECT_FALSE(batch.captions[row].empty());
        counts[k] += batch.left_out[k][row] ? 1 : 0;
      }
      both += batch.left_out[0][row] && batch.left_out[1][row] ? 1 : 0;
    }
  }
  for (const int64_t count : counts) EXPECT_NEAR(count, 0.25 * static_cast<double>(rows), 80);
  EXPECT_NEAR(both, static_cast<double>(rows) / 16, 45);
}

TEST_F(Images, FiniteDataEndsWithABatchThatIsNotFull) {
  write_sets();
  ImageLoaderOptions once = options(25);
  once.images.infinite = false;
  ImageLoader loader(corpus(), once);
  EXPECT_EQ(loader.next()->count, 25);
  EXPECT_EQ(loader.next()->count, 25);
  const ImageBatch last = loader.next().value();
  EXPECT_EQ(last.count, 8);
  EXPECT_EQ(last.samples, 25);
  EXPECT_EQ(last.pixels.size(), 25U * 3 * 16 * 16);
  EXPECT_EQ(last.captions[8], "");
  EXPECT_TRUE(last.left_out[0][8]);
  EXPECT_EQ(rows_of(last, 6, 4).count, 2);
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(loader.empty_batch().count, 0);
}

TEST_F(Images, SetsAreMixed) {
  folder_.write("set/a.tar", archive(0, 20));
  folder_.write("other/a.tar", archive(1000, 20));
  CorpusOptions first = corpus(), second = corpus();
  first.in_mix = second.in_mix = true;
  second.name = "others";
  second.path = folder_.path() / "other";
  ImageLoader loader({{.corpus = first}, {.corpus = second}}, {{.weights = {3, 1}}}, options(16));
  const auto rows = read(loader, 8);
  const auto others = std::ranges::count_if(rows, [](const Row& row) { return row.caption.size() == 12; });
  EXPECT_NEAR(static_cast<double>(others), 32, 9);
  EXPECT_EQ(loader.samples_by_source()[0].second, 128 - others);
  EXPECT_EQ(loader.samples_by_source()[1].second, others);
}

TEST_F(Images, WhatCannotBeUsedHasASentenceOrIsSkippedAndCounted) {
  const std::string png = make_png(40, 24, 1);
  const std::string ends = " Repair or remove it, or set training.skip_bad_records to leave such samples out.";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {tar_member("bad.png", png), "sample bad has no caption (.txt or .json)."},
      {tar_member("bad.txt", "x"), "sample bad has no image (.jpg, .jpeg, .png or .webp)."},
      {tar_member("bad.jpg", "") + tar_member("bad.txt", "x"), "sample bad has an image of no bytes."},
      {tar_member("bad.png", png) + tar_member("bad.txt", ""), "sample bad has an empty caption."},
      {tar_member("bad.png", png) + tar_member("bad.txt", "\xff"), "sample bad has a caption that is not UTF-8."},
      {tar_member("bad.png", png) + tar_member("bad.json", "{}"), "sample bad has no string \"caption\" in its .json."},
      {tar_member("bad.png", png.substr(0, 90)) + tar_member("bad.txt", "x"),
       "sample bad has an image that is damaged (it ends too early)."},
      {tar_member("bad.jpg", "<html>") + tar_member("bad.txt", "x"),
       "sample bad has an image that is neither JPEG, PNG nor WebP."},
  };
  for (const auto& [bad, problem] : cases) {
    const auto path = folder_.write("set/a.tar", sample(0) + bad + sample(1) + sample(2) + tar_end());
    CorpusOptions one = corpus();
    one.streams = 1;
    ImageLoader strict(one, options(1));
    EXPECT_EQ(strict.next()->captions[0], "picture 0");
    EXPECT_EQ(error_of([&] { strict.next(); }), fmt::format("{}:2: {}{}", path.string(), problem, ends));
    one.skip_bad_records = true;
    ImageLoaderOptions once = options(3);
    once.images.infinite = false;
    ::testing::internal::CaptureStdout();
    log_to_stdout(LogLevel::kWarning);
    {
      ImageLoader lenient(one, once);
      EXPECT_EQ(lenient.next()->captions, (std::vector<std::string>{"picture 0", "picture 1", "picture 2"}));
      EXPECT_FALSE(lenient.next());
      EXPECT_EQ(lenient.bad_records(), 1);
      EXPECT_EQ(lenient.small_images(), 0);
    }
    log_to_stdout(LogLevel::kError);
    const std::string log = ::testing::internal::GetCapturedStdout();
    EXPECT_NE(log.find(fmt::format("Dataset {}: 1 bad records skipped so far, the last one is {}:2: {}", one.name,
                                   path.string(), problem)),
              std::string::npos)
        << log;
  }
}

TEST_F(Images, SmallOnesAreSkippedAndCounted) {
  folder_.write("set/a.tar", sample(0) + sample(1, 15, 40) + sample(2, 40, 15) + sample(3, 16, 16) + tar_end());
  CorpusOptions one = corpus();
  one.streams = 1;
  ImageLoaderOptions once = options(4);
  once.images.infinite = false;
  ImageLoader loader(one, once);
  const auto rows = read(loader, 2);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].caption, "picture 3");
  EXPECT_EQ(loader.small_images(), 2);
  EXPECT_EQ(loader.bad_records(), 0);
  ImageLoaderOptions large = options(4);
  large.images.size = 64;
  ImageLoader none(one, large);
  const std::string refused =
      "Dataset pictures: no sample of data stream 0 can be used: all are bad, or their images are smaller than 64 x 64 "
      "pixels. Repair the data, or use a smaller training.img_size or fewer training.data_streams";
  EXPECT_EQ(error_of([&] { none.next(); }), refused + ".");
  for (int64_t i = 0; i < 12; ++i) folder_.write(fmt::format("set/{:02}.tar", i), archive(i * 10, 10));
  CorpusOptions blocks = corpus();
  blocks.striping = StripingChoice::kBlocks;
  ImageLoader dealt(blocks, large);
  EXPECT_EQ(error_of([&] { dealt.next(); }), refused + ", or set training.data_striping to \"records\".");
}

TEST_F(Images, OtherDataHasASentence) {
  const auto path = folder_.write("set/a.jsonl", "{\"text\":\"x\"}\n");
  EXPECT_EQ(error_of([&] { ImageLoader(corpus(), options(1)); }),
            fmt::format("Data file {} is JSON lines, but dataset pictures must hold images with captions. "
                        "Use archives of WebDataset (.tar).",
                        path.string()));
}

TEST_F(Images, SamplesOfArchivesHaveAllPartsOfAKey) {
  const std::string bytes = tar_member("x/README", "no ending") + tar_member("x/._1.png", "hidden") +
                            tar_member("x/1.PNG", "one") + tar_member("x/1.caption.txt", "no caption of ours") +
                            tar_member("x/1.json", R"({"caption": ["first", "second"]})") +
                            tar_member("y/1.webp", "two") + tar_member("y/1.txt", "other") + tar_end();
  RecordSource source(folder_.write("a.tar", bytes), {.reading = {.whole_samples = true}});
  EXPECT_EQ(source.count_up_to(10), 2);
  const Record first = source.read(0).value(), second = source.read(1).value();
  EXPECT_EQ(image_text(first).key, "x/1");
  EXPECT_EQ(image_text(first).image, "one");
  EXPECT_EQ(image_text(first).caption, "first");
  EXPECT_EQ(image_text(second).caption, "other");
  EXPECT_EQ(sample_parts(first.bytes).size(), 3U);
}

TEST_F(Images, ArchivesAreEnteredBetweenSamples) {
  std::string bytes;
  const auto part = [](int64_t i) { return std::string(100'000, static_cast<char>('a' + i % 26)); };
  for (int64_t i = 0; i < 50; ++i)
    bytes += tar_member(fmt::format("{}.jpg", i), part(i)) + tar_member(fmt::format("{}.txt", i), "x");
  const auto path = folder_.write("a.tar", bytes + tar_end());
  const RecordSourceOptions options{.reading = {.whole_samples = true}};
  RecordSource first(path, options), second(path, options);
  const Anchor anchor = first.read(45)->entrance();
  EXPECT_GT(anchor.record, 30);
  EXPECT_LE(anchor.record, 45);
  second.add_anchor(anchor);
  for (const int64_t i : {anchor.record, int64_t{45}, int64_t{49}}) {
    const Record record = second.read(i).value();
    EXPECT_EQ(image_text(record).key, std::to_string(i));
    EXPECT_EQ(image_text(record).image, part(i));
  }
  EXPECT_FALSE(second.read(50));
}

TEST_F(Images, BundledSetsAreReadWhole) {
  for (const auto& [name, count] : {std::pair{"cc12m_test", 32}, {"coco_test", 16}}) {
    CorpusOptions bundled = corpus();
    bundled.path = source_folder() / "tests/assets" / name;
    ImageLoaderOptions once = options(64);
    once.images.size = 256;
    once.images.infinite = false;
    ImageLoader loader(bundled, once);
    const ImageBatch batch = loader.next().value();
    EXPECT_EQ(batch.count, count);
    EXPECT_EQ(loader.small_images() + loader.bad_records(), 0);
    for (int64_t i = 0; i < count; ++i) EXPECT_TRUE(batch.captions[static_cast<size_t>(i)].ends_with(" background"));
  }
}

TEST_F(Images, InspectionShowsThem) {
  folder_.write("set/a.tar", sample(0) + tar_member("bad.png", "x") + tar_member("bad.txt", "y") + tar_end());
  const Inspection found = inspect(folder_.path() / "set", {});
  ASSERT_EQ(found.records, 2);
  EXPECT_EQ(found.samples[0].image, "PNG 40 x 24");
  EXPECT_EQ(found.samples[0].text, "picture 0");
  EXPECT_NE(found.samples[1].problem.find("sample bad has an image that is neither"), std::string::npos);
  EXPECT_EQ(inspect(folder_.path() / "set", {.reading = {.text_field = "txt"}}).samples[1].text, "y");
}

TEST_F(Images, InspectionCountsSamplesWhateverTheFirstOneIs) {
  folder_.write("set/a.tar", tar_member("0.json", "{}") + sample(1) + sample(2) + tar_end());
  EXPECT_EQ(inspect(folder_.path() / "set", {.samples = 0}).records, 2);  // members that are texts
  EXPECT_EQ(inspect(folder_.path() / "set", {.reading = {.whole_samples = true}, .samples = 0}).records, 3);
}

}  // namespace
}  // namespace titanium::data::testing
