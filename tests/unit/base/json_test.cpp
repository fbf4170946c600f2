#include "titanium/base/text/json.h"

#include <nlohmann/json.hpp>

namespace titanium {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    return "accepted: " + parse_json(text, limits).dump();
  } catch (const JsonError& error) {
    return error.what();
  }
}

TEST(Json, BuildsWhatTheLibraryBuilds) {
  for (const std::string text : {R"({"a": [1, -2, 2.5, true, null, "x\u00e9"], "b": {"c": {}, "d": []}})", "[]", "7",
                                 R"("text")", R"({"a": 1, "a": 2})", R"([18446744073709551615, [[[]]]])"}) {
    EXPECT_EQ(parse_json(text), nlohmann::json::parse(text)) << text;
  }
  EXPECT_EQ(parse_ordered_json(R"({"b": 1, "a": {"z": 1, "y": 2}})").dump(), R"({"b":1,"a":{"z":1,"y":2}})");
}

TEST(Json, RefusesWhatIsNotJson) {
  EXPECT_EQ(refusal("[1, 2"), "is not valid JSON (at byte 6)");
  EXPECT_EQ(refusal("\"\xff\""), "is not valid JSON (at byte 2)");
  EXPECT_EQ(refusal(""), "is not valid JSON (at byte 1)");
  EXPECT_EQ(refusal("1 2"), "is not valid JSON (at byte 3)");
}

TEST(Json, DeepNestingIsRefusedBeforeItIsBuilt) {
  const std::string open(1'000'000, '[');
  EXPECT_EQ(refusal(open), "nests deeper than 64 arrays and objects");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(refusal(objects), "nests deeper than 64 arrays and objects");
  EXPECT_EQ(refusal("[[1]]", {.depth = 1}), "nests deeper than 1 arrays and objects");
  EXPECT_EQ(refusal("[[1]]", {.depth = 2}), "accepted: [[1]]");
}

TEST(Json, KeysThatComeTwiceAreRefusedOnRequestAndWhereOrderCounts) {
  EXPECT_EQ(refusal(R"({"a\u001b": 1, "b": {"a": 1}, "a\u001b": 2})", {.unique_keys = true}),
            "has the key \"a\\x1b\" twice");
  EXPECT_THROW(parse_ordered_json(R"({"a": 1, "a": 2})"), JsonError);
}

TEST(Json, OnlyIntegersThatFitAreIntegers) {
  for (const int64_t number : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    EXPECT_EQ(integer_of(parse_json(std::to_string(number))), number);
    EXPECT_EQ(integer_of(parse_ordered_json(std::to_string(number))), number);
  }
  for (const char* text : {"1.5", "1e3", "-1.7e20", "9223372036854775808", "\"1\"", "true", "null", "[1]"}) {
    try {
      integer_of(parse_json(text));
      ADD_FAILURE() << text;
    } catch (const JsonError& error) {
      EXPECT_NE(std::string(error.what()).find("where an integer belongs"), std::string::npos);
    }
  }
}

TEST(Json, ManyMembersAreReadInOnePass) {
  // The library's own readers of ordered members, or with a callback, take minutes for this.
  std::string text = "{\"key\": 1";
  for (int i = 0; i < 300'000; ++i) text += fmt::format(",\"key{}\": {{}}", i);
  text += '}';
  EXPECT_EQ(parse_json(text, {.unique_keys = true}).size(), 300'001U);
  EXPECT_EQ(parse_ordered_json(text).size(), 300'001U);
}

}  // namespace
}  // namespace titanium
