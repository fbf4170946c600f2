#include "titanium/data/image/prepared_images.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/data/image/image_loader.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;
using test::test_folder;

const PreparedSizes kSizes{.img_size = 16,
                           .latent_channels = 2,
                           .latent_side = 1,
                           .text_tokens = 3,
                           .text_width = 2,
                           .pooled_width = 4,
                           .dtype = "bfloat16"};

PreparedDescription description() {
  return {.sizes = kSizes,
          .t5_encoder = {"t5", ""},
          .clip_encoder = {"clip", "00112233aabbccdd"},
          .autoencoder = {"ae.safetensors", "fedcba9876543210"},
          .fingerprint = "0123456789abcdef",
          .seed = 3,
          .streams = 4,
          .samples = 5};
}

struct Stored {
  std::string name, shape;
  size_t bytes;
  char fill;
};
std::vector<Stored> sample_tensors() {
  return {{"mean", "[2,1,1]", 4, 'm'},
          {"logvar", "[2,1,1]", 4, 'v'},
          {"t5_encodings", "[3,2]", 12, 't'},
          {"clip_encodings", "[4]", 8, 'c'}};
}

std::string safetensors(const std::vector<Stored>& tensors, const std::string& dtype = "BF16") {
  std::string table, bytes;
  for (const Stored& tensor : tensors) {
    table += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", table.empty() ? "" : ",",
                         tensor.name, dtype, tensor.shape, bytes.size(), bytes.size() + tensor.bytes);
    bytes += std::string(tensor.bytes, tensor.fill);
  }
  table = "{" + table + "}";
  const uint64_t length = table.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + table + bytes;
}

std::string complaint(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PreparedImages, EncodingsAreReadByName) {
  auto tensors = sample_tensors();
  std::ranges::reverse(tensors);
  const ImageEncodings found = parse_encodings(safetensors(tensors), kSizes, /*latents=*/true);
  EXPECT_EQ(std::string(found.moments.begin(), found.moments.end()), "mmmmvvvv");
  EXPECT_EQ(std::string(found.text.begin(), found.text.end()), std::string(12, 't'));
  EXPECT_EQ(std::string(found.pooled.begin(), found.pooled.end()), std::string(8, 'c'));
}

TEST(PreparedImages, OtherSizesAndDamageAreRefused) {
  const auto refused = [](const std::string& file) {
    return complaint([&] { parse_encodings(file, kSizes, /*latents=*/true); });
  };
  const std::string good = safetensors(sample_tensors());
  EXPECT_EQ(refused(good), "");
  EXPECT_EQ(refused(good.substr(0, good.size() - 1)), "has no whole .safetensors");
  EXPECT_EQ(refused(good.substr(0, 5)), "has no whole .safetensors");
  EXPECT_EQ(refused(std::string(8, '\xff') + good), "has no whole .safetensors");
  EXPECT_EQ(refused(safetensors(sample_tensors(), "F32")), "has a tensor mean that is not [2, 1, 1] in bfloat16");
  auto other = sample_tensors();
  other[2] = {"t5_encodings", "[2,3]", 12, 't'};
  EXPECT_EQ(refused(safetensors(other)), "has a tensor t5_encodings that is not [3, 2] in bfloat16");
  other.erase(other.begin() + 2);
  EXPECT_EQ(refused(safetensors(other)), "has no tensor t5_encodings");
  std::string damaged = good;
  damaged[8] = '[';
  EXPECT_EQ(refused(damaged), "has a damaged .safetensors");
  damaged = good;
  damaged.replace(damaged.find("[0,4]"), 5, "[9,4]");
  EXPECT_EQ(refused(damaged), "has no whole .safetensors");
}

TEST(PreparedImages, RandomDamageGivesEncodingsOrASentence) {
  const std::string good = safetensors(sample_tensors()), text = to_json(description());
  int64_t read = 0, refused = 0;
  test::fuzz(3000, [&](std::mt19937_64& random) {
    const auto damaged = [&](std::string bytes) {
      if (random() % 8 == 0) bytes.resize(random() % bytes.size());
      for (uint64_t edits = random() % 4; edits > 0 && !bytes.empty(); --edits)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      return bytes;
    };
    try {
      const PreparedDescription found = prepared_description_from_json(damaged(text), "p");
      EXPECT_EQ(parse_encodings(damaged(good), kSizes, /*latents=*/true).text.size(), 12U);
      parse_encodings(good, found.sizes, /*latents=*/false);
      ++read;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
      ++refused;
    }
  });
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST(PreparedImages, ADescriptionComesBackOrIsRefused) {
  const std::string text = to_json(description());
  EXPECT_EQ(prepared_description_from_json(text, "p"), description());
  const auto refused = [&](const std::string& what, const std::string& with) {
    std::string changed = text;
    changed.replace(changed.find(what), what.size(), with);
    return complaint([&] { prepared_description_from_json(changed, "p"); });
  };
  PreparedDescription without = description();
  without.clip_encoder.weights = without.autoencoder.weights = "";
  const std::string earlier = std::regex_replace(text, std::regex(R"( *"\w+_weights": "\w*",\n)"), "");
  EXPECT_EQ(earlier.find("_weights"), std::string::npos);
  EXPECT_EQ(prepared_description_from_json(earlier, "p"), without);
  EXPECT_TRUE(refused("{", "").starts_with("p is not valid JSON"));
  EXPECT_TRUE(refused("\"streams\"", "\"rivers\"").starts_with("p is damaged: "));
  EXPECT_EQ(refused("\"format\": 1", "\"format\": 2"),
            "p was written by another version of titanium. Prepare the images again.");
  EXPECT_EQ(refused("\"text_width\": 2", "\"text_width\": -2"),
            "p is damaged: it has a size of -2. Prepare the images again.");
  EXPECT_EQ(refused("bfloat16", "int4"), "p is damaged: dtype or fingerprint make no sense. Prepare the images again.");
}

// A folder with a sample for each letter; its mean is filled with it, and encodings of an empty caption with `empty`.
fs::path prepared_folder(const std::string& letters, const fs::path& folder = test_folder(), char empty = 'e',
                         const std::string& fingerprint = description().fingerprint) {
  std::string archive;
  for (size_t i = 0; i < letters.size(); ++i) {
    auto tensors = sample_tensors();
    tensors[0].fill = letters[i];
    archive += tar_member(fmt::format("{:09}.safetensors", i), safetensors(tensors));
    archive += tar_member(fmt::format("{:09}.txt", i), fmt::format("caption {}", letters[i]));
  }
  write_file_atomically(folder / "shards/00000.tar", archive + tar_end());
  write_file_atomically(folder / "empty.safetensors",
                        safetensors({{"t5_encodings", "[3,2]", 12, empty}, {"clip_encodings", "[4]", 8, empty}}));
  PreparedDescription described = description();
  described.fingerprint = fingerprint;
  write_file_atomically(folder / "prepared.json", to_json(described));
  return folder;
}

CorpusOptions corpus_of(const fs::path& folder, int64_t streams) {
  CorpusOptions corpus;
  corpus.prepared = std::make_shared<const PreparedImages>(open_prepared_images(folder));
  corpus.path = corpus.prepared->shards;
  corpus.streams = streams;
  return corpus;
}

std::unique_ptr<ImageLoader> open_loader(const fs::path& folder, double dropout, int64_t batch) {
  ImageLoaderOptions options;
  options.batch = batch;
  options.images.infinite = false;
  options.images.size = 16;
  options.images.caption_dropout = dropout;
  return std::make_unique<ImageLoader>(corpus_of(folder, 2), options);
}

TEST(PreparedImages, BatchesHaveTheRowsInOrderAndFillUpWithEmptyCaptions) {
  const auto loader = open_loader(prepared_folder("abcde"), 0, 3);
  const auto first = loader->next(), second = loader->next();
  EXPECT_EQ(first->captions, (std::vector<std::string>{"caption a", "caption b", "caption c"}));
  const auto& moments = first->encodings.moments;
  EXPECT_EQ(std::string(moments.begin(), moments.end()), "aaaavvvvbbbbvvvvccccvvvv");
  EXPECT_EQ(second->count, 2);
  const auto& text = second->encodings.text;
  EXPECT_EQ(std::string(text.begin(), text.end()), std::string(24, 't') + std::string(12, 'e'));
  const ImageBatch row = rows_of(*second, 1, 1);
  EXPECT_EQ(std::string(row.encodings.moments.begin(), row.encodings.moments.end()), "eeeevvvv");
  EXPECT_TRUE(first->pixels.empty());
  EXPECT_FALSE(loader->next());
}

TEST(PreparedImages, CaptionsAreLeftOutAsOfTheImagesThatTheyCameFrom) {
  const auto batch = open_loader(prepared_folder("abcdefgh"), 0.5, 8)->next();
  int64_t left_out = 0;
  for (size_t row = 0; row < 8; ++row) {
    left_out += batch->left_out[0][row] ? 1 : 0;
    EXPECT_EQ(batch->encodings.text[row * 12], batch->left_out[0][row] ? 'e' : 't');
    EXPECT_EQ(batch->encodings.pooled[row * 8], batch->left_out[1][row] ? 'e' : 'c');
  }
  EXPECT_GT(left_out, 0);
  EXPECT_LT(left_out, 8);
  EXPECT_NE(batch->left_out[0], batch->left_out[1]);
}

struct Row {
  int64_t number;
  std::string caption;
  std::vector<uint8_t> moments, text, pooled;
  bool operator==(const Row&) const = default;
};

constexpr int64_t kStreams = 8;

MixEntry entry_of(const fs::path& folder, bool shuffle) {
  CorpusOptions corpus = corpus_of(folder, kStreams);
  corpus.name = folder.filename();
  corpus.in_mix = true;
  corpus.shuffle = shuffle;
  return {.corpus = corpus};
}

// The next samples of a mix whose batches of 8 are read by `ranks`, in the order of their numbers.
std::vector<Row> read_mix(std::vector<MixEntry> entries, const std::vector<double>& weights, int64_t ranks,
                          int64_t batches, std::optional<LoaderState>& state) {
  ImageLoaderOptions options;
  options.batch = 8 / ranks;
  options.images.size = 16;
  options.images.caption_dropout = 0.5;
  options.num_workers = ranks;
  std::vector<Row> rows;
  std::vector<LoaderState> states;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (MixEntry& entry : entries) {
      entry.corpus.rank = rank;
      entry.corpus.ranks = ranks;
    }
    ImageLoader loader(entries, {{.weights = weights}}, options);
    if (state) loader.load(*state);
    for (int64_t i = 0; i < batches; ++i) {
      const ImageBatch batch = loader.next().value();
      for (int64_t k = 0; k < batch.count; ++k) {
        const ImageBatch one = rows_of(batch, k, 1);
        rows.push_back(
            {one.numbers[0], one.captions[0], one.encodings.moments, one.encodings.text, one.encodings.pooled});
      }
    }
    states.push_back(loader_state_from_json(to_json(loader.state())));
  }
  state = merge(states);
  std::ranges::sort(rows, {}, &Row::number);
  return rows;
}

class MixOfFolders : public ::testing::Test {
 protected:
  // Captions end in a letter: small ones are of the first set, whose empty captions have an 'e'.
  std::vector<MixEntry> entries(bool shuffle) const { return {entry_of(first_, shuffle), entry_of(second_, shuffle)}; }

  fs::path first_ = prepared_folder("abcdefghijk", test_folder() / "first", 'e');
  fs::path second_ = prepared_folder("ABCDEFGHIJKLMNOPQRS", test_folder() / "second", 'E', "fedcba9876543210");
};

TEST_F(MixOfFolders, HasTheSameSamplesOnAnyNumberOfReadersAndAfterAnyStop) {
  for (const bool shuffle : {false, true}) {
    std::optional<LoaderState> whole, parts;
    const std::vector<Row> expected = read_mix(entries(shuffle), {3, 1}, 1, 12, whole);
    ASSERT_EQ(expected.size(), 96U);
    std::vector<Row> found;
    for (const int64_t ranks : {1, 4, 2})
      for (Row& row : read_mix(entries(shuffle), {3, 1}, ranks, 4, parts)) found.push_back(std::move(row));
    EXPECT_TRUE(found == expected) << shuffle;
    EXPECT_EQ(parts->turns, whole->turns);
  }
}

TEST_F(MixOfFolders, EachSampleHasItsOwnEncodingsAndTheEmptyCaptionOfItsFolder) {
  std::optional<LoaderState> state;
  int64_t small = 0, left_out = 0;
  for (const Row& row : read_mix(entries(false), {3, 1}, 1, 12, state)) {
    const char letter = row.caption.back();
    const bool is_small = letter >= 'a';
    EXPECT_EQ(std::string(row.moments.begin(), row.moments.end()), std::string(4, letter) + "vvvv");
    EXPECT_TRUE(row.text[0] == 't' || row.text[0] == (is_small ? 'e' : 'E')) << row.text[0];
    EXPECT_TRUE(row.pooled[0] == 'c' || row.pooled[0] == (is_small ? 'e' : 'E')) << row.pooled[0];
    small += is_small ? 1 : 0;
    left_out += row.text[0] == 't' ? 0 : 1;
  }
  EXPECT_EQ(small, 72);
  EXPECT_NEAR(static_cast<double>(left_out), 48, 20);
}

// Note [Randomness of a sample]: a source in a mix gives what it gives alone.
TEST_F(MixOfFolders, EachStreamOfASourceHasTheSamplesThatItHasAlone) {
  std::optional<LoaderState> state, alone_state;
  const auto mixed = read_mix(entries(false), {3, 1}, 1, 12, state);
  const auto alone = read_mix({entry_of(second_, false)}, {1}, 1, 12, alone_state);
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    std::vector<Row> expected, found;
    for (const Row& row : alone)
      if (row.number % kStreams == stream) expected.push_back(row);
    for (const Row& row : mixed)
      if (row.number % kStreams == stream && row.caption.back() <= 'Z') found.push_back(row);
    ASSERT_FALSE(found.empty());
    ASSERT_LE(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      found[i].number = expected[i].number;
      EXPECT_TRUE(found[i] == expected[i]) << stream << " " << i;
    }
  }
}

TEST(PreparedImages, AFolderThatIsNotFinishedOrDamagedIsRefused) {
  const fs::path folder = prepared_folder("ab");
  write_file_atomically(folder / "empty.safetensors", "short");
  EXPECT_EQ(complaint([&] { open_prepared_images(folder); }),
            (folder / "empty.safetensors").string() + ": has no whole .safetensors. Prepare the images again.");
  fs::remove(folder / "prepared.json");
  EXPECT_EQ(complaint([&] { open_prepared_images(folder); }),
            folder.string() +
                " has no prepared.json: its preparation has not ended. Run titanium data prepare-images "
                "again, which goes on where it was.");
  fs::remove(folder / "empty.safetensors");
  EXPECT_EQ(complaint([&] { open_prepared_images(folder); }),
            folder.string() +
                " has no prepared.json: encoder.offline reads folders of titanium data prepare-images. "
                "Make one, or set encoder.offline = false.");
}

TEST(PreparedImages, ABadSampleNamesItsArchiveAndKey) {
  const fs::path folder = prepared_folder("ab");
  write_file_atomically(folder / "shards/00000.tar", tar_member("7.txt", "a caption") +
                                                         tar_member("7.safetensors", "x") +
                                                         tar_member("8.txt", "no tensors") + tar_end());
  EXPECT_EQ(
      complaint([&] { open_loader(folder, 0, 1)->next(); }),
      (folder / "shards/00000.tar").string() +
          ":1: sample 7 has no whole .safetensors. Repair or remove it, or set training.skip_bad_records to leave "
          "such samples out.");
}

}  // namespace
}  // namespace titanium::data
