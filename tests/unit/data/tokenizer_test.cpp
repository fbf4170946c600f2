#include "titanium/data/tokenizer.h"

#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/data_files.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/data/fetchable.h"
#include "titanium/data/tokenizer/text/regex.h"
#include "titanium/data/tokenizer/text/unicode.h"
#include "titanium/data/tokenizer/training/bpe_merges.h"
#include "titanium/data/tokenizer/training/tokenizer_training.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText =
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.\n"
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; 1234567 mal!\n"
    "速い茶色の狐が怠け者の犬を飛び越える。 \n  indented   text\r\n👍🏽 the end\n";

// A tokenizer that is trained once on kText.
const fs::path& trained_folder() {
  static const testing::TemporaryFolder folder;
  [[maybe_unused]] static const bool trained = [] {
    const fs::path input = folder.write("input.txt", kText);
    train_tokenizer({.inputs = {input}, .vocab_size = 300, .min_pair_count = 1}, folder.path(),
                    [](auto, auto, auto) {});
    return true;
  }();
  return folder.path();
}

std::string load_error(const fs::path& folder) {
  try {
    Tokenizer::load(folder);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string load_error(const std::string& name, const nlohmann::json& change) {
  nlohmann::json json = nlohmann::json::parse(read_file(trained_folder() / "tokenizer.json", "tokenizer"));
  json.merge_patch(change);
  const fs::path folder = test::test_folder() / name;
  write_file_atomically(folder / "tokenizer.json", json.dump());
  return load_error(folder);
}

// The command names the owner of the model's repository where somebody knows it.
TEST(Tokenizer, AMissingModelIsFetchedFromItsOwner) {
  const std::string sentence =
      "tokenizer folder assets/hf/Toy-1B does not exist. Fetch it with: titanium download --repo_id {}/Toy-1B --assets "
      "tokenizer config";
  EXPECT_EQ(load_error("assets/hf/Toy-1B"), fmt::format(fmt::runtime(sentence), "OWNER"));
  know_owners([](const std::string& model) { return model.starts_with("Toy-") ? "acme" : ""; });
  EXPECT_EQ(load_error("assets/hf/Toy-1B"), fmt::format(fmt::runtime(sentence), "acme"));
  EXPECT_NE(load_error("assets/hf/Other").find("OWNER/Other"), std::string::npos);
  know_owners(nullptr);
}

TEST(Tokenizer, MissingFilesAreListed) {
  EXPECT_EQ(load_error("/no/such/folder"),
            "tokenizer folder /no/such/folder does not exist. Name a folder that holds tokenizer.json.");
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "notes.txt", "");
  EXPECT_EQ(load_error(folder), "tokenizer folder " + folder.string() +
                                    " has no tokenizer: looked for tokenizer.json, tekken.json, tokenizer.model, "
                                    "spiece.model, a file *.tiktoken, vocab.json or vocab.txt (with merges.txt), found "
                                    "notes.txt.");
}

TEST(Tokenizer, UnsupportedPartsAreNamed) {
  using nlohmann::json;
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(load_error("bad_pre", {{"pre_tokenizer", {{"type", "BertPreTokenizer"}}}}),
       "pre_tokenizer type BertPreTokenizer is not");
  says(load_error("bad_normalizer", {{"normalizer", {{"type", "BertNormalizer"}}}}),
       "normalizer type BertNormalizer is not");
  says(load_error("bad_decoder", {{"decoder", {{"type", "WordPiece"}}}}), "decoder type WordPiece is not supported");
  says(load_error("bad_model", {{"model", {{"type", "WordPiece"}}}}), "model type WordPiece is not supported");
  says(load_error("bad_pieces",
                  {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array({json::array({"a"})})}}}}),
       "a piece is [\"a\"], expected [\"text\", score].");
  says(load_error("bad_unk",
                  {{"model", {{"type", "Unigram"}, {"unk_id", 7}, {"vocab", json::array({json::array({"a", 0.5})})}}}}),
       "the model's \"unk_id\" is 7, expected the place of a piece.");
  says(load_error("bad_charsmap", {{"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}}}),
       "the normalizer's \"precompiled_charsmap\" is not base64.");
  says(load_error("bad_ends", {{"post_processor", {{"type", "RobertaProcessing"}, {"cls", {"x"}}, {"sep", {"x", 1}}}}}),
       "the post_processor's \"cls\" is [\"x\"], expected [\"token\", id].");
  says(load_error("bad_post", {{"post_processor", {{"type", "PairProcessing"}}}}),
       "post_processor type PairProcessing");
  says(load_error("dropout", {{"model", {{"dropout", 0.1}}}}), "option dropout = 0.1 is not supported");
  says(load_error("merge", {{"model", {{"merges", json::array({"a zzzz"})}}}}), "needs the token 'zzzz'");
  says(load_error("padding", {{"padding", {{"length", 8}}}}), "\"padding\" is not supported");
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "tokenizer.json", "{\"model\":");
  says(load_error(folder), "tokenizer.json is not valid JSON (at byte 10). Fetch or write it again.");
  // Sequences inside each other, and a configuration of nothing but brackets, would end in an overflow of the stack.
  std::string deep = "{\"decoder\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"type\":\"Sequence\",\"decoders\":[";
  write_file_atomically(folder / "tokenizer.json", deep);
  says(load_error(folder), "tokenizer.json nests deeper than 64 arrays and objects. Fetch or write it again.");
  const fs::path trained = trained_folder();
  fs::copy_file(trained / "tokenizer.json", folder / "tokenizer.json", fs::copy_options::overwrite_existing);
  write_file_atomically(folder / "tokenizer_config.json", std::string(1'000'000, '['));
  says(load_error(folder), "tokenizer_config.json nests deeper than 64 arrays and objects.");
}

TEST(Tokenizer, EveryBytePatternSurvivesTheRoundTrip) {
  const auto tokenizer = Tokenizer::load(trained_folder());
  for (const std::string_view text : {"", " ", "\n\n  x", "Ünïcödé 👍🏽", kText, "\xEF\xBB\xBFz"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, true, true), true), text);
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF\xC3", false, false), false), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, BosAndEosComeOnRequest) {
  const auto tokenizer = Tokenizer::load(trained_folder());
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_EQ(tokenizer.encode("", true, true), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(tokenizer.encode("", false, false), std::vector<TokenId>{});
  EXPECT_EQ(tokenizer.encode("<|end_of_text|>", true, false), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(tokenizer.vocab_size(), 300);
  EXPECT_EQ(tokenizer.token_to_id("<|end_of_text|>"), 1);
  EXPECT_EQ(tokenizer.id_to_token(0), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer.id_to_token(5000), std::nullopt);
}

TEST(Tokenizer, ThreadsGetTheSameIds) {
  const auto tokenizer = Tokenizer::load(trained_folder());
  const std::vector<TokenId> expected = tokenizer.encode(kText, true, true);
  std::vector<std::thread> threads;
  std::atomic<int> different = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) different += tokenizer.encode(kText, true, true) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

TEST(Tokenizer, LongWordsMergeLikeShortOnes) {
  const auto tokenizer = Tokenizer::load(trained_folder());
  // A word beyond the cache and the scan, made of one that is not: every piece but the first begins the same way.
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "the";
  const auto ids = tokenizer.encode(text, false, false);
  EXPECT_EQ(tokenizer.decode(ids, false), text);
  EXPECT_EQ(ids.back(), tokenizer.encode("thethethethe", false, false).back());
}

TEST(TokenizerTraining, ThreadsAndOrderOfFilesDoNotChangeTheResult) {
  const fs::path folder = test::test_folder();
  std::string lines;
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) lines += fmt::format("word{} and {} more\n", random() % 500, random() % 70);
  write_file_atomically(folder / "a.txt", lines);
  write_file_atomically(folder / "b.jsonl", "{\"text\": \"some other text\"}\n{\"text\": \"and other words\"}\n");
  const auto train = [&](std::vector<fs::path> inputs, int threads, const char* name) {
    train_tokenizer({.inputs = std::move(inputs), .vocab_size = 600, .threads = threads}, folder / name,
                    [](auto, auto, auto) {});
    return read_file(folder / name / "tokenizer.json", "tokenizer");
  };
  const std::string once = train({folder / "a.txt", folder / "b.jsonl"}, 1, "one");
  EXPECT_EQ(once, train({folder / "a.txt", folder / "b.jsonl"}, 5, "five"));
  EXPECT_EQ(once, train({folder / "b.jsonl", folder / "a.txt"}, 2, "two"));
}

TEST(TokenizerTraining, OfPairsThatAreAsFrequentTheSmallestIsMergedFirst) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  std::vector<CountedWord> words;
  for (char c = 'a'; c <= 'z'; ++c) words.push_back({std::string{c, 'A'}, 3});
  const LearnedMerges learned = learn_merges(words, bytes, 256 + 26, 1, [](size_t) {});
  ASSERT_EQ(learned.merges.size(), 26U);
  for (int i = 0; i < 26; ++i) EXPECT_EQ(learned.merges[static_cast<size_t>(i)].first, 'a' + i);
}

TEST(TokenizerTraining, BadInputsHaveTheirSentences) {
  const fs::path folder = test::test_folder();
  const auto error = [&](const fs::path& input, int64_t size) -> std::string {
    try {
      train_tokenizer({.inputs = {input}, .vocab_size = size}, folder, [](auto, auto, auto) {});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  write_file_atomically(folder / "x.jsonl", "{\"text\": \"fine\"}\n{\"txt\": 1}\n");
  EXPECT_EQ(error("/no/file.jsonl", 300), "input file /no/file.jsonl does not exist. Check the path.");
  EXPECT_EQ(error(folder / "x.jsonl", 300),
            (folder / "x.jsonl").string() + ":2: the line is not a JSON object with a string field \"text\".");
  EXPECT_EQ(error(folder / "x.jsonl", 100),
            "vocabulary size 100 is too small: the bytes and the special tokens alone are 258.");
}

TEST(Regex, ConstructsThatMeanSomethingElseAreRefused) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", "a{1,2}+", "(?m:.)", "\\bx", "[\\P{L}]", "a\\K", "[[:alpha:]]"}) {
    EXPECT_THROW(oniguruma_to_pcre2(pattern), Error) << pattern;
  }
}

TEST(Unicode, EachMaximalInvalidPartBecomesOneReplacement) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("plain ä"), std::nullopt);
  EXPECT_EQ(replace_invalid_utf8("a\xE4\xB8z"), "a" + r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
}

// Random mutations of a tokenizer.json: any outcome but a sentence or a working tokenizer is a bug.
TEST(TokenizerFuzz, MutatedFilesLoadOrExplain) {
  const std::string original = read_file(trained_folder() / "tokenizer.json", "tokenizer");
  const fs::path folder = test::test_folder();
  const std::vector<std::string> pieces = {"null", "{}",     "[]",          "-1",      "1e99", "\"\"", "\"type\"",
                                           "true", "\\p{L}", "(a+)+",       "\xFF",    "}",    "]",    ",",
                                           "\"",   "[[[[",   "99999999999", "\\u0000", " ",    "Split"};
  int loaded = 0;
  int refused = 0;
  test::fuzz(200, [&](std::mt19937_64& random) {
    std::string text = original;
    for (uint64_t i = 0, count = 1 + random() % 4; i < count; ++i) {
      const size_t at = random() % (random() % 2 ? std::min<size_t>(text.size(), 2500) : text.size());
      const size_t removed = random() % 3 ? random() % 4 : random() % 200;
      text.replace(at, removed, pieces[random() % pieces.size()]);
    }
    std::ofstream(folder / "tokenizer.json", std::ios::binary) << text;
    try {
      const auto tokenizer = Tokenizer::load(folder);
      tokenizer.decode(tokenizer.encode(kText, true, true), false);
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  });
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace titanium::data
