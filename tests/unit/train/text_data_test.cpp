#include "titanium/train/task/text_data.h"

#include <gtest/gtest.h>

#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/config/reading/load_config.h"

namespace titanium::train {
namespace {

config::Training training_of(const std::string& toml) {
  const auto path = test::test_folder() / "mix.toml";
  write_file_atomically(path, toml);
  return config::load_config(std::vector<std::string>{"--job.config_file=" + path.string()}).config.training;
}

TEST(MixturePieces, BeginAtTheFirstSampleOfTheirStep) {
  const auto training = training_of(
      "[[training.sources]]\nname = \"a\"\npath = \"x\"\nweight = 2\n"
      "[[training.sources]]\nname = \"b\"\npath = \"y\"\nweight_schedule = [[0, 1.0], [10, 3.0]]\n"
      "[[training.sources]]\nname = \"c\"\npath = \"z\"\nweight_schedule = [[0, 0.5], [7, 4.0]]\n");
  const auto pieces = mixture_pieces(training, {1, 1, 1}, 8);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].first, 0);
  EXPECT_EQ(pieces[0].weights, (std::vector<double>{2, 1, 0.5}));
  EXPECT_EQ(pieces[1].first, 7 * 8);
  EXPECT_EQ(pieces[1].weights, (std::vector<double>{2, 1, 4}));
  EXPECT_EQ(pieces[2].first, 10 * 8);
  EXPECT_EQ(pieces[2].weights, (std::vector<double>{2, 3, 4}));
}

TEST(MixturePieces, ATemperatureFlattensTheSizes) {
  const auto training = training_of(
      "[training]\nsource_temperature = 2.0\n"
      "[[training.sources]]\nname = \"a\"\npath = \"x\"\n[[training.sources]]\nname = \"b\"\npath = \"y\"\n");
  const auto pieces = mixture_pieces(training, {100, 2500}, 8);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].weights, (std::vector<double>{10, 50}));
}

}  // namespace
}  // namespace titanium::train
