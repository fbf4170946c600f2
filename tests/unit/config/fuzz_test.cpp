// Random damage to files and arguments: the answer is a configuration or a UsageError, soon.
#include "tests/support/fuzz.h"

#include "tests/support/source_folder.h"
#include "tests/unit/config/config_file.h"
#include "titanium/base/files/file.h"
#include "titanium/config/dump.h"
#include "titanium/config/reading/toml_document.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {
namespace {

class Fuzz : public ::testing::Test {
 protected:
  template <typename Round>
  void repeat(int rounds, const Round& round) {
    test::fuzz(rounds, [&](std::mt19937_64& random) {
      random_ = &random;
      round();
    });
  }

  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(*random_); }

  std::string pick(const std::vector<std::string>& items) { return items[below(items.size())]; }

  std::string mutate(std::string text) {
    static const std::vector<std::string> kPieces = {"[",
                                                     "]",
                                                     "[[",
                                                     "=",
                                                     "\n",
                                                     "\"",
                                                     "'''",
                                                     "\"\"\"",
                                                     "{",
                                                     "}",
                                                     ".",
                                                     ",",
                                                     "\\u0000",
                                                     "-1",
                                                     "1e999",
                                                     "nan",
                                                     "inf",
                                                     "0x",
                                                     "true",
                                                     "None",
                                                     "#",
                                                     "\xff",
                                                     "\xed\xa0\x80",
                                                     "\xef\xbb\xbf",
                                                     "1979-05-27T07:32:00Z",
                                                     "99999999999999999999",
                                                     "training",
                                                     "steps",
                                                     "\r",
                                                     std::string(1, '\0')};
    for (size_t edits = 1 + below(6); edits > 0; --edits) {
      const size_t at = below(text.size() + 1);
      switch (below(4)) {
        case 0:
          text.insert(at, pick(kPieces));
          break;
        case 1:
          text.erase(at, below(20));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(below(256));
          break;
        default:
          text.insert(at, text.substr(below(text.size() + 1), below(40)));
      }
    }
    return text;
  }

  std::mt19937_64* random_ = nullptr;
};

// What loads can be shown; what does not load says why.
void load_or_explain(const Args& args) {
  try {
    to_toml(load_config(args), true);
  } catch (const UsageError& error) {
    EXPECT_STRNE(error.what(), "");
  }
}

TEST_F(Fuzz, DamagedFilesAreReadOrRefused) {
  const std::string seed = read_file(source_folder() / "configs/llama3/debug_model.toml", "configuration");
  repeat(500, [&] { load_or_explain({"--job.config_file", write_config(mutate(seed))}); });
}

TEST_F(Fuzz, DamagedArgumentsAreReadOrRefused) {
  std::vector<std::string> names;
  for (const Option& option : schema().options()) names.push_back("--" + option.name());
  const std::vector<std::string> values = {"1", "-1", "None", "op", "a,b", "[[\"a\"]]", "3e-4", "", "true", "float8"};
  repeat(500, [&] {
    Args args;
    for (size_t count = below(8); count > 0; --count) {
      std::string name = pick(names);
      if (name == "--job.config_file") continue;
      if (below(4) == 0) name = mutate(name);
      std::string value = below(4) == 0 ? mutate(pick(values)) : pick(values);
      if (below(2) == 0) {
        args.push_back(name + "=" + value);
      } else {
        args.push_back(name);
        if (below(3) > 0) args.push_back(value);
      }
    }
    load_or_explain(args);
  });
}

TEST_F(Fuzz, DeepNestingIsRefused) {
  const auto repeated = [](const char* piece) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += piece;
    return text;
  };
  for (const std::string& text : {"steps = " + repeated("["), "steps = " + repeated("{a="), "[" + repeated("a.") + "a]",
                                  repeated("a.") + "a = 1", "steps = {" + repeated("a.") + "a = 1}"}) {
    EXPECT_THROW(parse_toml(text, "deep"), UsageError) << text.substr(0, 20);
  }
  EXPECT_EQ(toml_error("[training]\n" + repeated("a.") + "a = 1"),
            "run.toml:2: a key has more than 16 dots. Options have at most 4.");
}

TEST_F(Fuzz, DottedKeysInsideArraysAreRefusedBeforeTheyAreFollowed) {
  // Within the limit of values inside each other, every level may bring a long key of its own.
  std::string key = "a", nested = "steps = ";
  for (int i = 0; i < 900; ++i) key += ".a";
  for (int i = 0; i < 30; ++i) nested += "[\n{" + key + " = ";
  EXPECT_THROW(parse_toml(nested, "deep"), UsageError);
  EXPECT_EQ(toml_error("[training]\nsteps = [{" + key + " = 1}]"),
            "run.toml:2: a key has more than 16 dots. Options have at most 4.");
  EXPECT_THROW(parse_toml("x = " + std::string(40, '['), "deep"), UsageError);
}

TEST_F(Fuzz, DotsInTextsAndCommentsDoNotCount) {
  const std::string dots(2000, '.');
  const TomlNode root = parse_toml("# " + dots + "\na = [\"x\\\"" + dots + "\", '" + dots + "', 1.5, 2.5] # " + dots +
                                       "\nb = \"\"\"\n\"" + dots + "\n\"\"\"\nc = '''" + dots + "'''\n\"k" + dots +
                                       "\" = 1\n" + "'l" + dots + "'.m = 2\n",
                                   "dots");
  EXPECT_EQ(root.children.size(), 5U);
  EXPECT_EQ(root.children[1].line, 3);
}

TEST_F(Fuzz, NestedListsOnTheCommandLineAreRefusedAsOneText) {
  std::string option;
  for (const Option& candidate : schema().options()) {
    if (candidate.type() == Type::kListOfLists) option = candidate.name();
  }
  ASSERT_NE(option, "");
  const std::string message = cli_error({"--" + option, std::string(1'000'000, '[')});
  EXPECT_NE(message.find("must be a list of lists of texts"), std::string::npos) << message.substr(0, 300);
  EXPECT_LT(message.size(), 1000U);
}

TEST_F(Fuzz, ManyUnknownKeysAndLongOnesAreRefusedInOnePass) {
  std::string keys = "[training]\n";
  for (int i = 0; i < 100'000; ++i) keys += fmt::format("unknown_key_{} = 1\n", i);
  const std::string many = toml_error(keys);
  EXPECT_NE(many.find("run.toml:2: training.unknown_key_0 = 1: there is no option training.unknown_key_0."),
            std::string::npos);
  EXPECT_NE(many.find("99,900 more problems"), std::string::npos) << many.substr(many.size() - 200);
  const std::string longest = toml_error("[training]\n" + std::string(1'000'000, 'k') + " = 1\n");
  EXPECT_NE(longest.find("there is no option training.kkk"), std::string::npos);
  EXPECT_LT(longest.size(), 2000U);
}

TEST_F(Fuzz, LongValuesAreShortInMessages) {
  const std::string message = toml_error("[training]\nsteps = \"" + std::string(1000000, 'x') + "\"\n");
  EXPECT_LT(message.size(), 1000U);
}

}  // namespace
}  // namespace titanium::config
