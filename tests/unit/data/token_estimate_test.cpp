// How many tokens a data set has, against counting them all.
#include "titanium/data/token_estimate.h"

#include "tests/support/data_files.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

// Words as tokens, so that a byte of a text of long words has fewer.
std::vector<int32_t> encode_words(std::string_view text) {
  std::vector<int32_t> tokens = {1};
  for (const char c : text) {
    if (c == ' ') tokens.push_back(2);
  }
  return tokens;
}

// Of 300 to 3,000 bytes each; words are twice as long at the end as at the beginning.
std::string lines_of(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    const size_t length = 300 + random() % 2'700;
    std::string text;
    while (text.size() < length) {
      const size_t word = 3 + random() % static_cast<size_t>(4 + 6 * i / count);
      for (size_t k = 0; k < word; ++k) text += static_cast<char>('a' + random() % 26);
      text += ' ';
    }
    lines += fmt::format("{{\"text\": \"{}\"}}\n", text);
  }
  return lines;
}

std::vector<SourceFile> files_of(const fs::path& path) { return find_source_files(path, false); }

double counted(const fs::path& path) {
  RecordSource source(path, {});
  double tokens = 0;
  for (int64_t i = 0;; ++i) {
    const auto record = source.read(i);
    if (!record) return tokens;
    tokens += static_cast<double>(encode_words(document_text(*record, "text")).size());
  }
}

void expect_near(const fs::path& path) {
  const auto found = estimate_tokens(files_of(path), {}, encode_words);
  ASSERT_TRUE(found);
  EXPECT_GT(found->error, 0);
  EXPECT_LT(found->error, 0.15 * found->tokens);
  EXPECT_NEAR(found->tokens, counted(path), found->error);
}

TEST(TokenEstimate, PlacesAllOverTheBytesGiveTheTokensWithinTheErrorThatIsTold) {
  const TemporaryFolder folder;
  expect_near(folder.write("one.jsonl", lines_of(8'000, 1)));
  for (int i = 0; i < 12; ++i) folder.write(fmt::format("several/{:02}.jsonl", i), lines_of(300 + 60 * i, 2));
  expect_near(folder.path() / "several");
  for (int i = 0; i < 24; ++i) folder.write(fmt::format("packed/{:02}.jsonl.gz", i), gzip(lines_of(300 + 10 * i, 3)));
  expect_near(folder.path() / "packed");
}

TEST(TokenEstimate, LittleDataIsCountedAndBadRecordsHaveNoTokens) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("a.jsonl", lines_of(1'000, 4));
  const auto found = estimate_tokens(files_of(path), {}, encode_words);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tokens, counted(path));
  EXPECT_EQ(found->error, 0);
  const auto bad =
      estimate_tokens(files_of(folder.write("b.jsonl", "{}\n{\"text\": \"a b \"}\n[\n")), {}, encode_words);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->tokens, 3);
}

TEST(TokenEstimate, IsNoneWhereTooLittleCanBeReadInTheMiddle) {
  const TemporaryFolder folder;
  std::mt19937_64 random(5);
  std::string noise;  // that does not become small
  for (int i = 0; i < 16 << 20; ++i) noise += static_cast<char>('a' + random() % 26);
  const std::string line = fmt::format("{{\"text\": \"{}\"}}\n", noise);
  EXPECT_FALSE(estimate_tokens(files_of(folder.write("a.jsonl.gz", gzip(line))), {}, encode_words));
  EXPECT_FALSE(estimate_tokens(files_of(folder.write("a.txt.gz", gzip(line))), {}, encode_words));
}

// Their lines are in no order, so that they go on as they begin.
TEST(TokenEstimate, OfLargeCompressedFilesIsThatOfTheirBeginningsAndSaysSo) {
  const TemporaryFolder folder;
  const std::string text = lines_of(8'000, 6);
  std::mt19937_64 random(7);
  std::vector<std::string> lines;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin + 1));
  }
  std::ranges::shuffle(lines, random);
  std::string shuffled;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& line : lines) shuffled += line;
    std::ranges::shuffle(lines, random);
  }
  for (const auto& [name, packed] : {std::pair{"one.jsonl.gz", gzip(shuffled)}, {"one.jsonl.zst", zstd(shuffled)}}) {
    const fs::path path = folder.write(name, packed);
    ASSERT_GT(fs::file_size(path), size_t{12} << 20);
    expect_near(path);
    EXPECT_TRUE(estimate_tokens(files_of(path), {}, encode_words)->from_beginnings);
  }
  for (int i = 0; i < 3; ++i)
    folder.write(fmt::format("three/{}.jsonl.zst", i), zstd(shuffled.substr(0, shuffled.size() / 2)));
  expect_near(folder.path() / "three");
}

// At least `bytes` of lines whose words have `length` of the first `letters` letters: fewer letters pack more tightly.
std::string lines_alike(size_t bytes, size_t length, uint64_t letters) {
  std::mt19937_64 random(8);
  std::string lines;
  while (lines.size() < bytes) {
    std::string text;
    for (size_t i = 1; i <= 1'000; ++i)
      text += i % (length + 1) == 0 ? ' ' : static_cast<char>('a' + random() % letters);
    lines += fmt::format("{{\"text\": \"{}\"}}\n", text);
  }
  return lines;
}

void expect_within_a_tenth(const fs::path& path) {
  const auto found = estimate_tokens(files_of(path), {}, encode_words);
  ASSERT_TRUE(found);
  const double truth = counted(path);
  EXPECT_NEAR(found->tokens, truth, found->error);
  EXPECT_NEAR(found->tokens, truth, 0.1 * truth);
}

TEST(TokenEstimate, PlacesWeighTheSameWhateverIsReadThere) {
  const TemporaryFolder folder;
  const std::string long_words = gzip(lines_alike(size_t{9} << 20, 19, 26));
  const std::string short_words = gzip(lines_alike(size_t{4} << 20, 4, 26));
  const std::string packed = zstd(lines_alike(size_t{32} << 20, 4, 2));
  const std::string plain = lines_alike(packed.size(), 4, 26);
  ASSERT_GT(std::min(long_words.size(), packed.size()), size_t{4} << 20);
  ASSERT_LT(short_words.size(), size_t{4} << 20);
  for (int i = 0; i < 2; ++i) folder.write(fmt::format("whole_and_beginnings/large{}.jsonl.gz", i), long_words);
  for (int i = 0; i < 4; ++i) folder.write(fmt::format("whole_and_beginnings/small{}.jsonl.gz", i), short_words);
  expect_within_a_tenth(folder.path() / "whole_and_beginnings");
  folder.write("plain_and_packed/a.jsonl", plain);
  folder.write("plain_and_packed/b.jsonl.zst", packed);
  expect_within_a_tenth(folder.path() / "plain_and_packed");
  folder.write("loose_and_tight/a.jsonl.gz", long_words);
  folder.write("loose_and_tight/b.jsonl.zst", packed);
  expect_within_a_tenth(folder.path() / "loose_and_tight");
}

// Half of the bytes are records of 200 KB, which begin at few of the places.
TEST(TokenEstimate, RecordsLongerThanAPlaceWeighAsMuchAsTheyStore) {
  const TemporaryFolder folder;
  std::string lines = lines_alike(size_t{10} << 20, 4, 26);
  for (int i = 0; i < 50; ++i) lines += fmt::format("{{\"text\": \"{}\"}}\n", std::string(200'000, 'a'));
  const fs::path path = folder.write("a.jsonl", lines);
  const auto found = estimate_tokens(files_of(path), {}, encode_words);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->tokens, counted(path), found->error);
}

}  // namespace
}  // namespace titanium::data::testing
