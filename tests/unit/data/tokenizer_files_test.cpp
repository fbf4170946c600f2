// Tokenizer files of other makers: what is wrong with them is said, and damage never gets further than that.
#include <nlohmann/json.hpp>

#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/base64.h"
#include "titanium/data/tokenizer.h"
#include "titanium/data/tokenizer/files/tokenizer_parts.h"
#include "titanium/data/tokenizer/pre_tokenizer.h"
#include "titanium/data/tokenizer/text/unicode.h"
#include "titanium/data/tokenizer/text/word_scanner.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string all_bytes_as_ranks() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    lines += fmt::format("{} {}\n", to_base64(std::string(1, static_cast<char>(byte))), byte);
  }
  return lines;
}

TEST(Base64, EveryLengthSurvivesTheRoundTrip) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(to_base64("ab"), "YWI=");
  EXPECT_EQ(from_base64("YW*="), std::nullopt);
  EXPECT_EQ(from_base64("YWJjZ"), std::nullopt);
}

TEST(TokenRanks, FilesOfUnknownMakersAndDamageHaveTheirSentences) {
  EXPECT_EQ(
      error_of([] { parts_of_ranks(all_bytes_as_ranks()); }),
      "the file has 256 ranks, and nothing says how its text is split. Known are files of 128000 (Llama 3), 200000 "
      "(Llama 4), 151643 (Qwen), 199998 (GPT-OSS), 50256 (GPT-2) ranks. Use the model's tokenizer.json instead.");
  EXPECT_EQ(error_of([] { parts_of_ranks("YQ== 0\nYg==\n"); }),
            "line 2 is not a token in base64 and its rank: Yg==. Fetch the file again.");
  EXPECT_EQ(error_of([] { parts_of_ranks("YQ== 0\nYg== 1x\n"); }),
            "line 2 is not a token in base64 and its rank: Yg== 1x. Fetch the file again.");
}

nlohmann::json tekken_of(int tokens) {
  nlohmann::json vocab = nlohmann::json::array();
  for (int i = 0; i < tokens; ++i) {
    vocab.push_back({{"rank", i}, {"token_bytes", to_base64(std::string(1, static_cast<char>(i)))}});
  }
  return {{"config", {{"pattern", "\\s+|\\S+"}, {"default_vocab_size", 266}, {"default_num_special_tokens", 10}}},
          {"vocab", vocab},
          {"special_tokens",
           {{{"rank", 0}, {"token_str", "<unk>"}},
            {{"rank", 1}, {"token_str", "<s>"}},
            {{"rank", 2}, {"token_str", "</s>"}}}}};
}

TEST(Tekken, SpecialTokensComeFirstAndMistakesAreNamed) {
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "tekken.json", tekken_of(256).dump());
  const auto tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer.encode("a</s>", true, true), (std::vector<TokenId>{1, 'a' + 10, 2, 2}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1, 'a' + 10, 9}, false), "<s>a<SPECIAL_9>");
  EXPECT_EQ(error_of([] { parts_of_tekken(tekken_of(255)); }),
            "the vocabulary of 255 tokens does not give the 266 of default_vocab_size with 10 special ones.");
  nlohmann::json wrong = tekken_of(256);
  wrong["config"]["default_num_special_tokens"] = 1'000'000'000;
  wrong["config"]["default_vocab_size"] = 1'000'000'256;
  EXPECT_EQ(error_of([&] { parts_of_tekken(wrong); }),
            "default_num_special_tokens is 1000000000, expected at most 65536.");
  wrong = tekken_of(256);
  wrong["vocab"][7]["rank"] = 8;
  EXPECT_NE(error_of([&] { parts_of_tekken(wrong); }).find("entry 7 of the vocabulary is not a token of rank 7"),
            std::string::npos);
}

// A SentencePiece model by hand: pieces of (text, score, type) and fields of the trainer's part.
std::string field(int number, std::string_view bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + std::string(bytes);
}

std::string piece(std::string_view text, float score, int type) {
  std::string bytes = field(1, text) + "\x15";
  bytes.append(reinterpret_cast<const char*>(&score), sizeof score);
  return field(1, bytes + "\x18" + static_cast<char>(type));
}

std::string sentencepiece_model(int model_type) {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\xE2\x96\x81", -1, 1) +
         piece("a", -2, 1) + piece("b", -3, 1) + piece("ab", -4, 1) +
         piece(
             "\xE2\x96\x81"
             "a",
             -5, 1) +
         field(2, std::string("\x18") + static_cast<char>(model_type));
}

TEST(SentencePiece, ModelsAreReadAndMistakesAreNamed) {
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "tokenizer.model", sentencepiece_model(2));
  const auto bpe = Tokenizer::load(folder);
  // ab has the better score, so that it is merged before the mark and a.
  EXPECT_EQ(bpe.encode(" ab  c<s>", true, false), (std::vector<TokenId>{1, 3, 6, 3, 0}));
  EXPECT_EQ(bpe.decode(std::vector<TokenId>{1, 3, 6, 7, 5}, true), "ab ab");
  write_file_atomically(folder / "tokenizer.model", sentencepiece_model(1));
  EXPECT_EQ(Tokenizer::load(folder).encode("ab", false, true), (std::vector<TokenId>{3, 6, 2}));
  EXPECT_EQ(error_of([] { parts_of_sentencepiece(sentencepiece_model(3)); }),
            "the SentencePiece model has type 3, expected 1 (unigram) or 2 (BPE).");
  EXPECT_EQ(error_of([] {
              parts_of_sentencepiece(
                  "\n\x7F"
                  "abc");
            }),
            "the SentencePiece model is damaged at byte 2. Fetch the file again.");
  EXPECT_EQ(error_of([] { parts_of_sentencepiece(piece("a", 0, 1)); }),
            "the SentencePiece model has no piece for unknown characters. Fetch the file again.");
  EXPECT_EQ(error_of([] { parts_of_sentencepiece(piece("a", 0, 5) + piece("<unk>", 0, 2) + field(2, "\x18\x02")); }),
            "piece 0 of the SentencePiece model is marked as unused, which is not supported for BPE.");
}

TEST(SentencePiece, ScoresThatAreNoNumbersAreRefused) {
  for (const float score : {NAN, INFINITY, -INFINITY}) {
    EXPECT_EQ(error_of([&] { parts_of_sentencepiece(sentencepiece_model(2) + piece("c", score, 1)); }),
              fmt::format("piece \"c\" of the SentencePiece model has the score {}. Fetch the file again.", score));
  }
}

TEST(SentencePiece, NormalisationRulesWithoutATrieAreRefused) {
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "tokenizer.model",
                        sentencepiece_model(1) + field(3, field(2, std::string("\0\0\0\0x\0", 6))));
  EXPECT_EQ(error_of([&] { Tokenizer::load(folder); }),
            fmt::format("{}: the compiled normalisation rules are cut short. Fetch the file again.",
                        (folder / "tokenizer.model").string()));
}

TEST(SentencePiece, OfEqualPiecesTheLastOneCountsAndEmptyOnesDoNot) {
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "tokenizer.model", sentencepiece_model(1) + piece("", 0, 4) + piece("", 0, 1));
  EXPECT_EQ(Tokenizer::load(folder).encode("ab", false, false), (std::vector<TokenId>{3, 6}));
  write_file_atomically(folder / "tokenizer.model", sentencepiece_model(1) + piece("ab", -3.5, 1));
  EXPECT_EQ(Tokenizer::load(folder).encode("ab", false, false), (std::vector<TokenId>{3, 8}));
}

TEST(SentencePiece, OfEqualSumsTheFirstFoundStaysAndUnknownCharactersAreOne) {
  const fs::path folder = test::test_folder();
  // "aa" has the score of two times "a".
  write_file_atomically(folder / "tokenizer.model", sentencepiece_model(1) + piece("aa", -4, 1));
  EXPECT_EQ(Tokenizer::load(folder).encode("baacd", false, false), (std::vector<TokenId>{3, 5, 8, 0}));
}

// Every place of a long piece may be where two others meet; to look all of them up would take hours.
TEST(SentencePiece, LongPiecesAreCutWhereOthersCanMeet) {
  const auto long_piece = [](size_t length) {
    std::string text(length, 'a'), bytes = "\n";
    for (size_t size = length; size > 0; size >>= 7U) bytes += static_cast<char>(size >= 0x80 ? size | 0x80U : size);
    bytes += text + std::string("\x15\0\0\x80\xBF", 5) + "\x18\x01";
    std::string whole = "\n";
    for (size_t size = bytes.size(); size > 0; size >>= 7U)
      whole += static_cast<char>(size >= 0x80 ? size | 0x80U : size);
    return whole + bytes;
  };
  constexpr size_t kLength = 2'000'000;
  const TokenizerParts parts =
      parts_of_sentencepiece(sentencepiece_model(2) + long_piece(kLength - 1) + long_piece(kLength));
  EXPECT_TRUE(std::get<BpeTables>(parts.tables).vocabulary.id(std::string(kLength, 'a')).has_value());
}

TEST(SentencePieceFuzz, MutatedModelsLoadOrExplain) {
  const fs::path folder = test::test_folder();
  int loaded = 0, refused = 0;
  test::fuzz(2000, [&](std::mt19937_64& random) {
    std::string model = sentencepiece_model(1 + static_cast<int>(random() % 2)) +
                        field(3, field(2, std::string("\x08\0\0\0\0\x01\0\0\0\x01\0\0 \0", 14)));
    for (uint64_t i = 0, count = 1 + random() % 3; i < count; ++i)
      model[random() % model.size()] = static_cast<char>(random());
    std::ofstream(folder / "tokenizer.model", std::ios::binary) << model;
    try {
      const auto tokenizer = Tokenizer::load(folder / "tokenizer.model");
      tokenizer.decode(tokenizer.encode("a b\xFF ab\xE2\x96\x81 \xE4\xB8\xAD", true, true), false);
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  });
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

TEST(AddedTokens, SpecialTokensInTextsBecomeTokensTextOrAnError) {
  const fs::path folder = test::test_folder();
  write_file_atomically(folder / "tekken.json", tekken_of(256).dump());
  EXPECT_EQ(Tokenizer::load(folder).encode("<s>", false, false), (std::vector<TokenId>{1}));
  const std::vector<TokenId> text = {'<' + 10, 's' + 10, '>' + 10};
  EXPECT_EQ(Tokenizer::load(folder, SpecialInText::kText).encode("<s>", false, false), text);
  EXPECT_EQ(error_of([&] { Tokenizer::load(folder, SpecialInText::kError).encode("a<s>", false, false); }),
            "the text holds the special token <s> at byte 1. Take it out, or say what special tokens in texts become.");
  write_file_atomically(folder / "tokenizer_config.json", R"({"split_special_tokens": true})");
  EXPECT_EQ(Tokenizer::load(folder).encode("<s>", false, false), text);
}

struct Words : WordSink {
  void word(std::string_view word) override { words.emplace_back(word); }
  std::vector<std::string> words;
};

PreTokenizer split_by(const std::string& pattern) {
  return PreTokenizer::from_json(
      {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
}

std::vector<std::string> words_of(const PreTokenizer& split, const std::string& text) {
  Words words;
  split.split(text, words);
  return words.words;
}

// The patterns of Llama 3, Qwen, Llama 4 and GPT-OSS, and tekken.
std::vector<std::string> scanned_patterns() {
  const std::string contraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))", signs = R"(| ?[^\s\p{L}\p{N}]+)";
  const std::string of_letters = contraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})",
                    space = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto by_case = [](const std::string& after) {
    return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" + after +
           R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" + after + R"(|\p{N})";
  };
  return {of_letters + "{1,3}" + signs + R"([\r\n]*)" + space, of_letters + signs + R"([\r\n]*)" + space,
          by_case(contraction + "?") + "{1,3}" + signs + R"([\r\n/]*)" + space,
          by_case("") + signs + R"([\r\n/]*)" + space};
}

TEST(WordScanner, CutsLikeTheRegularExpression) {
  const std::vector<std::string> pieces = {
      " ", "  ", "\n", "\r\n", "\t", "\u00A0", "\u3000",     "a",       "B",      "é",      "中",
      "1", "23", "²",  "'",    "'s", "'LL",    "'ſ",         "'re",     "’",      ".",      "!?",
      "/", "É",  "ǅ",  "ʰ",    "ab", "CD",     "\U0001F44D", "e\u0301", "\u0897", "\u0301", "\U000E0100"};
  for (const std::string& pattern : scanned_patterns()) {
    ASSERT_TRUE(WordScanner::for_pattern(pattern));
    ASSERT_FALSE(WordScanner::for_pattern("(?:" + pattern + ")"));
    ASSERT_FALSE(WordScanner::for_pattern(pattern + "|a"));
    const PreTokenizer scanner = split_by(pattern), regex = split_by("(?:" + pattern + ")");
    test::fuzz(4000, [&](std::mt19937_64& random) {
      std::string text;
      for (uint64_t i = 0, count = 1 + random() % 12; i < count; ++i) text += pieces[random() % pieces.size()];
      EXPECT_EQ(words_of(scanner, text), words_of(regex, text)) << text;
    });
  }
}

// Each between letters, in front of one and after one.
TEST(WordScanner, SeesEveryCharacterAsTheRegularExpressionDoes) {
  const std::string pattern = scanned_patterns()[2];
  const PreTokenizer scanner = split_by(pattern), regex = split_by("(?:" + pattern + ")");
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string character;
    append_utf8(character, c);
    const std::string text = "a" + character + "B" + character + " " + character;
    ASSERT_EQ(words_of(scanner, text), words_of(regex, text)) << std::hex << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace titanium::data
