#include "titanium/base/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace titanium {
namespace {

std::string logged(LogFormat format, const std::function<void()>& action) {
  ::testing::internal::CaptureStdout();
  log_to_stdout(LogLevel::kInfo, format);
  action();
  return ::testing::internal::GetCapturedStdout();
}

TEST(Log, TextLinesAreTorchtitans) {
  const std::string line = logged(LogFormat::kText, [] { log_warning("careful: {}", 7); });
  EXPECT_TRUE(line.starts_with("[titan] 20")) << line;
  EXPECT_TRUE(line.ends_with(" - root - WARNING - careful: 7\n")) << line;
}

TEST(Log, JsonLinesHaveRankAndStep) {
  set_log_rank(3);
  set_log_step(12);
  const std::string text = logged(LogFormat::kJson, [] {
    log_info("two\nlines \"quoted\" \x1b[32mgreen\x1b[39m");
    log_error("bad byte \xff");
  });
  ASSERT_EQ(std::ranges::count(text, '\n'), 2);
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["level"], "INFO");
  EXPECT_EQ(first["source"], "titanium");
  EXPECT_EQ(first["rank"], 3);
  EXPECT_EQ(first["step"], 12);
  EXPECT_EQ(first["message"], "two\nlines \"quoted\" green");
  EXPECT_EQ(first["time"].get<std::string>().size(), std::string("2026-01-31T12:00:00.123Z").size());
  const auto second = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  EXPECT_EQ(second["level"], "ERROR");
  EXPECT_EQ(second["message"], "bad byte \ufffd");
  log_to_stdout(LogLevel::kError);
}

}  // namespace
}  // namespace titanium
