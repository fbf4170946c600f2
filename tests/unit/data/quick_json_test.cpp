// The quick parser of JSON lines takes what nlohmann's takes, and nothing else.
#include "titanium/data/quick_json.h"

#include "tests/support/data_files.h"
#include "tests/support/fuzz.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

// By the other parser alone.
std::optional<std::string> expected_text(const std::string& line) {
  const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("text") || !record["text"].is_string()) return std::nullopt;
  return record["text"].get<std::string>();
}

std::optional<std::string> found_text(const TemporaryFolder& folder, const std::string& line) {
  RecordSource source(folder.write("a.jsonl", line), {});
  const auto record = source.read(0);
  try {
    return record ? std::optional(document_text(*record, "text")) : std::nullopt;
  } catch (const BadRecord&) {
    return std::nullopt;
  }
}

TEST(QuickJson, AgreesOnWhatIsHardToRead) {
  const TemporaryFolder folder;
  const std::vector<std::string> lines = {
      R"({"text":"a\u00e9\n\t\"\\\/\b\f\r"})",
      R"({"text":"\ud83d\ude00"})",
      R"({"text":"\ud83d"})",
      R"({"text":"\ude00"})",
      R"({"text":"\uDE00 x"})",
      R"({"text":"\uD83D\uDE00\ude00"})",
      R"({"text":"\ud83d\ud83d\ude00"})",
      R"({"text":"\ud83d\\ude00"})",
      R"({"text":"\\\ude00"})",
      R"({"text":"\\ude00"})",
      R"({"text":"\ud83dabcdef\ude00"})",
      R"({"text":"a","n":"\udfff"})",
      R"({"\udc00":"b","text":"a"})",
      R"({"text":"\ud83d\u"})",
      R"({"text":"\ud83d\ude0)",
      R"({"text":"\udg00"})",
      R"({"text":"a","text":"b"})",
      R"({"text":"a","text":3})",
      R"({"text":3,"text":"a"})",
      R"({"a":{"text":"x"},"text":"y"})",
      R"([{"text":"x"}])",
      R"({"text":"a"} )",
      R"({"text":"a"}x)",
      std::string("{\"text\":\"a\"}\0", 13),
      std::string("{\"text\":\"a\"}\0x", 14),
      std::string("{\"text\":\"a\0b\"}", 14),
      "{\"text\":\"\xc3\xa9\"}",
      "{\"text\":\"\xff\"}",
      "{\"text\":\"\xed\xa0\x80\"}",
      "{\"text\":\"a\x01\"}",
      R"({"text":"a","n":1e999})",
      R"({"text":"a","n":12345678901234567890123})",
      R"({"text":"a","n":01})",
      R"({"text":"a",})",
      R"({"text":"a","n":NaN})",
      R"({'text':'a'})",
      R"({"text":"a"/**/})",
      "\xef\xbb\xbf{\"text\":\"a\"}",
  };
  for (const std::string& line : lines) EXPECT_EQ(found_text(folder, line), expected_text(line)) << line;
}

TEST(QuickJson, NeedsNoCarefulParserForEscapesOfAnyScript) {
  const std::map<std::string, std::string> texts = {
      {R"({"text":"\ud83d\ude00 \uD83D\uDE00"})", "😀 😀"},
      {R"({"text":"\ud55c\uad6d\uc5b4 \uD7A3"})", "한국어 힣"},
      {R"({"text":"C:\\users\\ude00"})", R"(C:\users\ude00)"},
      {R"({"text":"\u00e9\u4f60\ue000\uffff","n":"\ud83d\ude00"})", "é你\uE000\uFFFF"},
  };
  for (const auto& [line, expected] : texts) {
    std::string text;
    EXPECT_TRUE(quick_text(line, "text", text)) << line;
    EXPECT_EQ(text, expected) << line;
  }
}

TEST(QuickJson, LeavesHalvesOfSurrogatePairsToTheCarefulParser) {
  for (const std::string line : {R"({"text":"\ud83d"})", R"({"text":"\ude00"})", R"({"text":"\ud83d\ude00\ude00"})",
                                 R"({"text":"\\\ude00"})", R"({"text":"a","n":"\uDFFF"})"}) {
    std::string text;
    EXPECT_FALSE(quick_text(line, "text", text)) << line;
  }
}

// Damages `whole` and expects of both parsers the same; returns how many records were still good, and how many of them
// the quick parser read.
std::pair<int64_t, int64_t> good_and_quick(const std::string& whole) {
  const TemporaryFolder folder;
  int64_t good = 0;
  int64_t quick = 0;
  test::fuzz(400, [&](std::mt19937_64& random) {
    std::string line = whole;
    for (uint64_t edits = random() % 3; edits > 0; --edits) {
      const size_t at = random() % line.size();
      if (random() % 2 == 0) {
        line[at] = static_cast<char>(random() % 256);
      } else {
        line.erase(at, 1 + random() % 3);
      }
    }
    if (line.find('\n') != std::string::npos || line.empty()) return;
    const auto expected = expected_text(line);
    std::string text;
    good += expected ? 1 : 0;
    quick += expected && quick_text(line, "text", text) ? 1 : 0;
    ASSERT_EQ(found_text(folder, line), expected) << line;
  });
  return {good, quick};
}

TEST(QuickJson, AgreesOnDamagedRecords) {
  const auto [good, quick] = good_and_quick(
      R"({"url":"http://x/\u00e9","meta":{"a":[1,2.5,null,true]},"text":"w\u00f6rd \\ \"q\" é","n":-3e2})");
  EXPECT_GT(good, 50);
  EXPECT_EQ(quick, good);
}

TEST(QuickJson, AgreesOnDamagedEscapesOfSurrogates) {
  const auto [good, quick] =
      good_and_quick(R"({"text":"\ud83d\ude00\uD83D\uDE00\\\ud83d\ude00\\ud83d\uac00\uD7FF\ud83d\ude00"})");
  EXPECT_GT(good, 50);
  EXPECT_EQ(quick, good);
}

}  // namespace
}  // namespace titanium::data::testing
