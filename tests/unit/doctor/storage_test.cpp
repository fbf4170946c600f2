#include <gtest/gtest.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/test_folder.h"
#include "titanium/doctor/storage_check.h"

namespace titanium::doctor {
namespace {

StorageRequest alone(const std::filesystem::path& folder) {
  return {.folder = folder, .trial = "trial", .bytes = 1 << 20, .barrier = [] {}};
}

TEST(Storage, TriesTheNearestFolderAndLeavesNothingBehind) {
  const std::filesystem::path folder = test::test_folder();
  const std::vector<Finding> findings = check_storage(alone(folder / "not/there/yet"));
  ASSERT_EQ(findings.size(), 3U);
  for (const Finding& finding : findings) EXPECT_EQ(finding.severity, Severity::kFine) << finding.fact;
  EXPECT_GT(findings[1].figures.at("write_gbs"), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(Storage, ACheckpointThatDoesNotFitIsAnError) {
  const std::filesystem::path folder = test::test_folder();
  StorageRequest request = alone(folder);
  request.checkpoint_bytes = int64_t{1} << 60;
  const std::vector<Finding> findings = check_storage(request);
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_NE(findings[0].fact.find("a checkpoint takes 1.15e+09 GB"), std::string::npos) << findings[0].fact;
}

TEST(Storage, ADiskThatIsFullIsNamedWithItsFile) {
  const std::filesystem::path folder = test::test_folder();
  std::vector<Finding> findings;
  {
    const test::FileSizeLimit limit(4096);
    findings = check_storage(alone(folder));
  }
  ASSERT_EQ(findings[1].severity, Severity::kError);
  EXPECT_EQ(findings[1].fact, "cannot write " + (folder / "trial.tmp/rank_0").string() + " (File too large)");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(Storage, RanksThatWroteElsewhereAreMissed) {
  const std::filesystem::path folder = test::test_folder();
  StorageRequest request = alone(folder);
  request.world_size = 2;  // the second never comes
  request.patience = std::chrono::milliseconds(50);
  const std::vector<Finding> findings = check_storage(request);
  ASSERT_EQ(findings.back().severity, Severity::kError);
  EXPECT_NE(findings.back().fact.find("holds the files of 1 of 2 ranks"), std::string::npos) << findings.back().fact;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace titanium::doctor
