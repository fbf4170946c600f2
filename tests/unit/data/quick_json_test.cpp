// The quick parser of JSON lines takes what nlohmann's takes, and nothing else.
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

TEST(QuickJson, AgreesOnDamagedRecords) {
  const TemporaryFolder folder;
  const std::string whole =
      R"({"url":"http://x/\u00e9","meta":{"a":[1,2.5,null,true]},"text":"w\u00f6rd \ud83d\ude00 \"q\" é","n":-3e2})";
  int64_t good = 0;
  test::fuzz(600, [&](std::mt19937_64& random) {
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
    good += expected ? 1 : 0;
    ASSERT_EQ(found_text(folder, line), expected) << line;
  });
  EXPECT_GT(good, 50);
}

}  // namespace
}  // namespace titanium::data::testing
