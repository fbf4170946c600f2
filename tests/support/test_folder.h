// A folder of the running test.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace titanium::test {

inline std::filesystem::path folder_of(const ::testing::TestInfo& test) {
  std::string name = fmt::format("titanium_{}.{}.{}", test.test_suite_name(), test.name(), ::getpid());
  std::replace(name.begin(), name.end(), '/', '_');  // in the names of parametrised tests
  return std::filesystem::path(::testing::TempDir()) / name;
}

// Under the system's folder for temporary files: empty when the test first asks, the same afterwards, and gone when the
// test has ended (main.cpp).
inline std::filesystem::path test_folder() {
  const std::filesystem::path folder = folder_of(*::testing::UnitTest::GetInstance()->current_test_info());
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace titanium::test
