#include "titanium/observe/event_file.h"

#include <gtest/gtest.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;
using test::test_folder;

TEST(EventFile, AFullDiskDoesNotEndTheRunAndLosesNothing) {
  const auto write = [](const fs::path& folder, bool disk_is_full) {
    EventFile events(folder);
    const Scalar scalar{"loss", 2.5};
    {
      std::optional<test::FileSizeLimit> full;
      if (disk_is_full) full.emplace(fs::file_size(events.path()) + 10);
      EXPECT_NO_THROW(events.write(1, {&scalar, 1}));
    }
    events.write(2, {&scalar, 1});
    return fs::file_size(events.path());
  };
  const fs::path folder = test_folder();
  EXPECT_EQ(write(folder / "full", true), write(folder / "whole", false));
}

TEST(EventFile, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
}

TEST(EventFile, FolderThatCannotBeMadeIsAnError) { EXPECT_THROW(EventFile("/proc/no/such/folder"), Error); }

}  // namespace
}  // namespace titanium::observe
