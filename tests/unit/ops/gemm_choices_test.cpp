#include "titanium/ops/linear/gemm_choices.h"

#include <cstdlib>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"

namespace titanium::ops {
namespace {

TEST(GemmChoices, AreKeptByGpuAndVersion) {
  ::setenv("TITANIUM_CACHE_DIR", "/somewhere", 1);
  EXPECT_EQ(gemm_choices_file("NVIDIA H200", "130100"), "/somewhere/gemm_NVIDIA_H200_130100.txt");
  EXPECT_NE(gemm_choices_file("NVIDIA H200", "130100"), gemm_choices_file("NVIDIA H200", "130200"));
  ::unsetenv("TITANIUM_CACHE_DIR");
}

TEST(GemmChoices, OfSeveralRunsAddUpAndTheLatestWins) {
  const auto file = test::test_folder() / "deeper" / "gemm.txt";
  EXPECT_TRUE(read_gemm_choices(file).empty());
  write_gemm_choices(file, {{"2x3x4 a=rows", "0a"}, {"5x6x7 a=rows", "0b"}});
  write_gemm_choices(file, {{"5x6x7 a=rows", "0c"}, {"8x9x10 a=columns", "0d"}});
  EXPECT_EQ(read_gemm_choices(file),
            (GemmChoices{{"2x3x4 a=rows", "0a"}, {"5x6x7 a=rows", "0c"}, {"8x9x10 a=columns", "0d"}}));
}

TEST(GemmChoices, OfADamagedFileAreRefusedWithTheLine) {
  const auto file = test::test_folder() / "gemm.txt";
  write_file_atomically(file, "# comment\n2x3x4 0a\n2x3x4 not hex\n");
  try {
    read_gemm_choices(file);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(":3: \"2x3x4 not hex\""), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("titanium tune"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace titanium::ops
