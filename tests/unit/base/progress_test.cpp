#include "titanium/base/terminal/progress.h"

#include <gtest/gtest.h>

#include "titanium/base/text/readable.h"
#include "titanium/base/text/thousands.h"

namespace titanium {
namespace {

// Work whose clock the test sets.
struct TimedWork {
  explicit TimedWork(bool terminal, int64_t total = 1000, ProgressUnit unit = ProgressUnit::kItems)
      : progress("counting", total, unit,
                 {.terminal = terminal,
                  .clock = [this] { return now; },
                  .write = [this](std::string_view text) { written += text; }}) {}

  void update(double seconds, int64_t done) {
    now = 100 + seconds;
    progress.update(done);
  }

  double now = 100;
  std::string written;
  Progress progress;
};

TEST(Progress, ShortWorkSaysNothing) {
  for (const bool terminal : {false, true}) {
    TimedWork work(terminal);
    for (int64_t i = 1; i <= 1000; ++i) work.update(static_cast<double>(i) * 9e-4, i);
    EXPECT_EQ(work.written, "");
  }
}

TEST(Progress, WithoutATerminalThereIsALineEveryTenSeconds) {
  TimedWork work(false);
  for (int64_t second = 1; second <= 40; ++second) work.update(static_cast<double>(second), 25 * second);
  EXPECT_EQ(work.written,
            "counting: 25% (250 of 1,000), 25/s, 30 s left\n"
            "counting: 50% (500 of 1,000), 25/s, 20 s left\n"
            "counting: 75% (750 of 1,000), 25/s, 10 s left\n"
            "counting: 100% (1,000 of 1,000), 25/s, in 40 s\n");
}

TEST(Progress, TheEndOfLongWorkIsAlwaysSaid) {
  TimedWork work(false);
  work.update(11, 500);
  work.update(12, 1000);
  work.update(13, 1000);
  EXPECT_TRUE(work.written.ends_with("left\ncounting: 100% (1,000 of 1,000), 83.3/s, in 12 s\n")) << work.written;
}

TEST(Progress, ATerminalGetsABarWithRateAndTimeLeftInEightyColumns) {
  TimedWork work(true, 8'000'000'000'000, ProgressUnit::kBytes);
  work.update(0.5, 1'000'000'000);
  EXPECT_EQ(work.written, "");
  work.update(1000, 2'000'000'000'000);
  EXPECT_EQ(work.written, "\rcounting                 [####------------]  25%  2 GB/s  50 min 0 s left\x1b[K");
  EXPECT_LE(work.written.size() - 4, 80U);
  work.update(4000, 8'000'000'000'000);
  EXPECT_TRUE(work.written.ends_with("[################] 100%  2 GB/s  in 1 h 6 min\x1b[K\n")) << work.written;
}

TEST(Progress, WorkOfUnknownSizeTellsItsRateAndEndsWithItsLastState) {
  for (const bool terminal : {false, true}) {
    std::string written;
    double now = 100;
    {
      Progress progress("encoding", Progress::kUnknownTotal, ProgressUnit::kItems,
                        {.terminal = terminal,
                         .clock = [&] { return now; },
                         .write = [&](std::string_view text) { written += text; }});
      now = 112;
      progress.update(1200);
      now = 115;
      progress.update(1500);
      now = 120;
    }
    EXPECT_EQ(written, terminal ? "\rencoding                 1,200  100/s  for 12 s\x1b[K"
                                  "\rencoding                 1,500  100/s  for 15 s\x1b[K"
                                  "\rencoding                 1,500  75/s  for 20 s\x1b[K\n"
                                : "encoding: 1,200, 100/s, for 12 s\nencoding: 1,500, 75/s, for 20 s\n");
  }
}

TEST(Progress, TheTimeBetweenLinesMayBeShorter) {
  std::string written;
  double now = 100;
  Progress progress(
      "counting", 3, ProgressUnit::kItems,
      {.line_seconds = 0, .clock = [&] { return now; }, .write = [&](std::string_view text) { written += text; }});
  for (int64_t done = 1; done <= 3; ++done) now += 1, progress.update(done);
  EXPECT_EQ(written,
            "counting: 33% (1 of 3), 1/s, 2 s left\n"
            "counting: 66% (2 of 3), 1/s, 1 s left\n"
            "counting: 100% (3 of 3), 1/s, in 3 s\n");
}

TEST(Progress, ThreadsAddTheirShares) {
  TimedWork work(false);
  work.now = 150;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 250; ++j) work.progress.add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(work.written.ends_with("counting: 100% (1,000 of 1,000), 20/s, in 50 s\n")) << work.written;
}

TEST(Readable, DurationsCountsAndBytesAreShort) {
  EXPECT_EQ(readable_duration(12), "12 s");
  EXPECT_EQ(readable_duration(63), "1 min 3 s");
  EXPECT_EQ(readable_duration(7500), "2 h 5 min");
  EXPECT_EQ(readable_duration(3 * 86400 + 4 * 3600), "3 d 4 h");
  EXPECT_EQ(readable_duration(-1), "?");
  EXPECT_EQ(readable_count(1.234e9), "1.23 B");
  EXPECT_EQ(readable_count(999'900), "1 M");
  EXPECT_EQ(readable_count(789), "789");
  EXPECT_EQ(readable_bytes(1.5e6), "1.5 MB");
  EXPECT_EQ(readable_bytes(12), "12 B");
}

TEST(Thousands, SeparatorsStandBetweenGroupsOfThree) {
  EXPECT_EQ(with_thousands_separators(0), "0");
  EXPECT_EQ(with_thousands_separators(999), "999");
  EXPECT_EQ(with_thousands_separators(-1000), "-1,000");
  EXPECT_EQ(with_thousands_separators(8030261248), "8,030,261,248");
}

}  // namespace
}  // namespace titanium
