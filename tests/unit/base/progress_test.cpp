#include "titanium/base/progress.h"

#include "titanium/base/thousands.h"

namespace titanium {
namespace {

// Under CTest stderr is no terminal.
TEST(Progress, ShortWorkSaysNothing) {
  ::testing::internal::CaptureStderr();
  Progress progress("counting", 10);
  for (int i = 1; i <= 10; ++i) progress.update(i);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, LongWorkGetsALineForEveryTenth) {
  ::testing::internal::CaptureStderr();
  Progress progress("counting", 100);
  progress.update(10);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  for (int i = 50; i <= 100; ++i) progress.update(i);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "counting: 50%\ncounting: 60%\ncounting: 70%\ncounting: 80%\ncounting: 90%\ncounting: 100%\n");
}

TEST(Thousands, SeparatorsStandBetweenGroupsOfThree) {
  EXPECT_EQ(with_thousands_separators(0), "0");
  EXPECT_EQ(with_thousands_separators(999), "999");
  EXPECT_EQ(with_thousands_separators(-1000), "-1,000");
  EXPECT_EQ(with_thousands_separators(8030261248), "8,030,261,248");
}

}  // namespace
}  // namespace titanium
