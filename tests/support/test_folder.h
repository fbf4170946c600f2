// A folder of the running test.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace titanium::test {

// Empty, under the system's folder for temporary files.
inline std::filesystem::path test_folder() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) /
                                       fmt::format("{}.{}.{}", info->test_suite_name(), info->name(), ::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace titanium::test
