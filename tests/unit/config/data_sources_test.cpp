#include "titanium/config/data_sources.h"

#include <gtest/gtest.h>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/config/dump.h"
#include "titanium/config/reading/load_config.h"

namespace titanium::config {
namespace {

constexpr const char* kMix = R"([[training.sources]]
name = "web"
path = "/data/web"
weight = 0.4
[[training.sources]]
name = "code"
dataset = "c4_test"
text_field = "content"
weight_schedule = [[0, 0.1], [2000, 0.5]]
epochs = 4
when_exhausted = "drop"
[[training.sources]]
name = "books"
path = "/data/books"
weight = 1
[[validation.sources]]
name = "held out"
dataset = "c4_test_validation"
)";

LoadedConfig load(const std::string& toml) {
  const auto path = test::test_folder() / "mix.toml";
  write_file_atomically(path, toml);
  return load_config(std::vector<std::string>{"--job.config_file=" + path.string()});
}

std::string refusal(const std::string& table) {
  try {
    load("[[training.sources]]\n" + table);
  } catch (const UsageError& error) {
    const std::string text = error.what();
    return text.substr(text.find(": ") + 2);
  }
  return "";
}

TEST(DataSources, AreReadFromTables) {
  const LoadedConfig loaded = load(kMix);
  const auto sources = data_sources(loaded.config.training.sources, "training.sources");
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_EQ(sources[0], (DataSource{.name = "web", .path = "/data/web", .weight = 0.4}));
  EXPECT_EQ(sources[1], (DataSource{.name = "code",
                                    .dataset = "c4_test",
                                    .weight_schedule = {{0, 0.1}, {2000, 0.5}},
                                    .text_field = "content",
                                    .epochs = 4,
                                    .when_exhausted = "drop"}));
  EXPECT_EQ(sources[2].weight, 1);
  EXPECT_EQ(data_sources(loaded.config.validation.sources, "validation.sources")[0].name, "held out");
}

TEST(DataSources, SurviveADumpAndTheCommandLine) {
  const LoadedConfig loaded = load(kMix);
  const LoadedConfig again = load(to_toml(loaded, false));
  EXPECT_EQ(again.config.training.sources, loaded.config.training.sources);
  const LoadedConfig line = load_config(
      std::vector<std::string>{R"(--training.sources=[{"name": "web", "path": "/data/web", "weight": 0.4}])"});
  EXPECT_EQ(data_sources(line.config.training.sources, "training.sources")[0],
            data_sources(loaded.config.training.sources, "training.sources")[0]);
}

TEST(DataSources, RefusalsNameSourceKeyAndRemedy) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"path = \"x\"", "training.sources[0] has no name. Give it one: positions and metrics are kept under it."},
      {"name = \"a\"", "training.sources[0] names no data. Give it a path or a dataset."},
      {"name = \"a\"\npath = \"x\"\nwieght = 1", "training.sources[0] has no key \"wieght\". Did you mean weight?"},
      {"name = \"a\"\npath = \"x\"\nweight = -1", "training.sources[0].weight = -1 must be a number, at least 0."},
      {"name = \"a\"\npath = \"x\"\nweight = 1\nepochs = 2",
       "training.sources[0] has epochs and begins again without end. Set when_exhausted to \"drop\" or \"stop\"."},
      {"name = \"a\"\npath = \"x\"\nweight = 1\nepochs = 0\nwhen_exhausted = \"drop\"",
       "training.sources[0].epochs = 0 must be an integer from 1 to 1000000."},
      {"name = \"a\"\npath = \"x\"\nwhen_exhausted = \"end\"",
       "training.sources[0].when_exhausted = \"end\" must be \"repeat\", \"drop\" or \"stop\"."},
      {"name = \"a\"\npath = \"x\"\nweight_schedule = [[5, 1.0]]",
       "training.sources[0].weight_schedule = [[5, 1.0]] must be a list of [step, weight] with ascending steps, the "
       "first one 0."},
      {"name = \"a\"\npath = \"x\"\nweight = 1\nweight_schedule = [[0, 1]]",
       "training.sources[0] has both weight and weight_schedule. Remove one of the two."},
      {"name = \"a\"\npath = \"x\"",
       "training.sources: \"a\" has no weight. Give it one, or set training.source_temperature to weigh sources by "
       "their sizes."},
      {"name = \"a\"\npath = \"x\"\nweight = 1\n[training]\nsource_temperature = 2.0",
       "training.sources: \"a\" has a weight, and training.source_temperature weighs sources by their sizes. Remove "
       "one "
       "of the two."},
      {"name = \"a\"\npath = \"x\"\nweight = 0",
       "training.sources: all weights are 0. Give at least one source a weight."},
      {"name = \"a\"\npath = \"x\"\nweight = 1\n[[training.sources]]\nname = \"a\"\npath = \"y\"\nweight = 1",
       "training.sources has two sources of the name \"a\". Give each its own."},
  };
  for (const auto& [table, sentence] : cases) EXPECT_EQ(refusal(table), sentence) << table;
  try {
    load("[[validation.sources]]\nname = \"a\"\npath = \"x\"\nweight = 1");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("validation.sources[0] has no key \"weight\". There are name, path, dataset, text_field."),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace titanium::config
