// Texts and patterns that would take a tokenizer hours or gigabytes.
#include "tests/support/data_files.h"
#include "titanium/base/error.h"
#include "titanium/data/corpus.h"
#include "titanium/data/tokenizer/model/bpe.h"
#include "titanium/data/tokenizer/pre_tokenizer.h"

namespace titanium::data {
namespace {

using testing::TemporaryFolder;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Words : WordSink {
  void word(std::string_view word) override { sizes.push_back(word.size()); }
  std::vector<size_t> sizes;
};

PreTokenizer split_by(const std::string& pattern) {
  return PreTokenizer::from_json(
      {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
}

TEST(TokenizerLimits, MatchesAreTheSameWhereverTheWindowOfASearchEnds) {
  const PreTokenizer words = split_by(R"(\p{L}+|\s+(?!\S)|\s+|.)");
  for (const size_t size : {1, 2, 1000, 1022, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 16384, 100'000}) {
    Words found;
    const std::string wide(size % 5, '.');  // so that letters of two bytes lie differently in the windows
    std::string letters;
    for (size_t i = 0; i < size; ++i) letters += "é";
    words.split(wide + letters + std::string(size + 1, ' ') + "x" + std::string(size, '\n'), found);
    std::vector<size_t> expected(wide.size(), 1);
    // All spaces but the last, then that one, because a letter follows it.
    expected.insert(expected.end(), {2 * size, size, 1, 1, size});
    EXPECT_EQ(found.sizes, expected) << size;
  }
}

TEST(TokenizerLimits, APatternThatLooksAheadForEveryByteIsRefused) {
  Words found;
  const std::string text(200'000, 'a');
  EXPECT_EQ(error_of([&] { split_by("a*b|a").split(text, found); }),
            "the tokenizer's regular expression looks through 200000 bytes of text again and again. Simplify it, so "
            "that it does not look far ahead for short words.");
  EXPECT_LT(found.sizes.size(), 1000U);
  EXPECT_EQ(error_of([&] { split_by("a*b|a").split(text.substr(0, 500), found); }), "no error");
}

TEST(TokenizerLimits, AWordThatIsTooLongIsRefused) {
  const Bpe bpe(tables_of_merges(Vocabulary({{"a", 0}}), {}, {}), {});
  std::vector<TokenId> ids;
  EXPECT_EQ(error_of([&] { bpe.encode(std::string((16 << 20) + 1, 'a'), ids); }),
            "a word of 16777217 bytes is longer than 16777216, the most that the tokenizer takes.");
}

TEST(TokenizerLimits, ARecordThatCannotBeTokenizedIsABadRecord) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.jsonl", "{\"text\":\"good\"}\n{\"text\":\"bad\"}\n");
  const auto encoder = [](std::string_view text) -> std::vector<int32_t> {
    if (text == "bad") throw Error("the word is too long.");
    return {1};
  };
  Corpus strict({.name = "test", .path = path, .streams = 1}, encoder);
  EXPECT_EQ(error_of([&] { strict.document(1); }),
            fmt::format("{}:2: this record cannot be tokenized: the word is too long. Repair or remove it, or set "
                        "training.skip_bad_records to leave such records out.",
                        path.string()));
  Corpus lenient({.name = "test", .path = path, .skip_bad_records = true, .streams = 1}, encoder);
  EXPECT_TRUE(lenient.document(1)->tokens.empty());
  EXPECT_EQ(lenient.bad_records(), 1);
}

}  // namespace
}  // namespace titanium::data
