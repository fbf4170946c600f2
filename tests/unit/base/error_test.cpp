#include "titanium/base/error.h"

#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/nearest_name.h"

namespace titanium {
namespace {

TEST(Error, CheckThrowsTheFormattedSentence) {
  try {
    TI_CHECK(1 + 1 == 3, "{} is not {}. Use {}.", 2, 3, 2);
    FAIL() << "TI_CHECK did not throw";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "2 is not 3. Use 2.");
  }
}

TEST(Error, AssertionNamesFileAndCondition) {
  try {
    TI_ASSERT(false, "value {}", 7);
    FAIL() << "TI_ASSERT did not throw";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("error_test.cpp"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("value 7"), std::string::npos);
  }
}

TEST(File, AtomicWriteReadsBackAndLeavesNothingElse) {
  const std::filesystem::path folder = test::test_folder();
  write_file_atomically(folder / "a" / "b.txt", "first");
  write_file_atomically(folder / "a" / "b.txt", "second");
  EXPECT_EQ(read_file(folder / "a" / "b.txt", "file"), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "a"), {}), 1);
}

TEST(File, MissingFileAndDirectoryHaveTheirOwnSentences) {
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      read_file(path, "tokenizer");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("/no/such/file"), "tokenizer /no/such/file does not exist. Check the path.");
  EXPECT_EQ(message("/tmp"), "tokenizer /tmp is a directory. Name a file inside it.");
}

TEST(NearestName, FindsTyposAndRefusesStrangers) {
  const std::vector<std::string> names = {"seq_len", "steps", "dataset"};
  EXPECT_EQ(nearest_name("seqlen", names), "seq_len");
  EXPECT_EQ(nearest_name("datset", names), "dataset");
  EXPECT_EQ(nearest_name("wavelength", names), std::nullopt);
}

}  // namespace
}  // namespace titanium
