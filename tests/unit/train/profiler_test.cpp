// Which steps the profiler records. The letters are written out by hand, as torch.profiler.schedule(wait, warmup,
// active) has them; its steps count from 0.
#include "titanium/train/profiler.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/test_folder.h"

namespace titanium::train {
namespace {

// A letter for each step from 1 on: wait, warm-up, record.
std::string phases(int64_t freq, int64_t warmup, int64_t active, int64_t steps) {
  const config::Profiling options{.profile_freq = freq, .profiler_active = active, .profiler_warmup = warmup};
  std::string text;
  for (int64_t step = 1; step <= steps; ++step) {
    const ProfilerPhase phase = profiler_phase(options, step);
    text += phase == ProfilerPhase::kWait ? '.' : phase == ProfilerPhase::kWarmup ? 'w' : 'R';
  }
  return text;
}

TEST(ProfilerPhases, ACycleEndsWithItsRecordedSteps) {
  EXPECT_EQ(phases(10, 3, 1, 21), "......wwwR......wwwR.");
  EXPECT_EQ(phases(6, 2, 2, 9), "..wwRR..w");
  EXPECT_EQ(phases(3, 2, 1, 7), "wwRwwRw");
}

TEST(ProfilerPhases, WithoutWarmUpRecordingBeginsAtOnce) {
  EXPECT_EQ(phases(4, 0, 1, 8), "...R...R");
  EXPECT_EQ(phases(1, 0, 1, 3), "RRR");
}

// What Kineto is told about its library at the end of each cycle of a run of six steps: with `active` of every three
// steps recorded after one of warm-up.
std::vector<std::string> told(int64_t active) {
  JobConfig config;
  config.job.dump_folder = test::test_folder();
  config.profiling = {.enable_profiling = true, .profile_freq = 3, .profiler_active = active, .profiler_warmup = 1};
  config.training.steps = 6;
  std::vector<std::string> found;
  Profiler profiler(config, at::kCPU, /*rank=*/0, /*world_size=*/1, /*finished_steps=*/0);
  for (int64_t step = 1; step <= config.training.steps; ++step) {
    profiler.after_step(step);
    const char* value = std::getenv("TEARDOWN_CUPTI");
    if (step % config.profiling.profile_freq == 0) found.emplace_back(value == nullptr ? "nothing" : value);
  }
  return found;
}

TEST(ProfilerLibrary, IsUnloadedAfterCyclesThatStepsFollow) {
  using Told = std::vector<std::string>;
  ::unsetenv("TEARDOWN_CUPTI");
  EXPECT_EQ(told(/*active=*/2), (Told{"nothing", "nothing"}));  // the next cycle begins at once
  EXPECT_EQ(told(/*active=*/1), (Told{"1", "0"}));
  ::setenv("TEARDOWN_CUPTI", "1", /*overwrite=*/1);
  EXPECT_EQ(told(/*active=*/1), (Told{"1", "1"}));  // the user's word
  ::unsetenv("TEARDOWN_CUPTI");
}

TEST(ProfilerLibrary, StaysWhereARunIsStoppedInARecordedStep) {
  ::unsetenv("TEARDOWN_CUPTI");
  JobConfig config;
  config.job.dump_folder = test::test_folder();
  config.profiling = {.enable_profiling = true, .profile_freq = 10, .profiler_active = 2, .profiler_warmup = 1};
  config.training.steps = 100;
  Profiler profiler(config, at::kCPU, /*rank=*/0, /*world_size=*/1, /*finished_steps=*/0);
  EXPECT_STREQ(std::getenv("TEARDOWN_CUPTI"), "1");
  for (int64_t step = 1; step <= 9; ++step) profiler.after_step(step);
  profiler.finish();
  EXPECT_STREQ(std::getenv("TEARDOWN_CUPTI"), "0");
  ::unsetenv("TEARDOWN_CUPTI");
}

}  // namespace
}  // namespace titanium::train
