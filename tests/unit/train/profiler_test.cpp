// Which steps the profiler records. The letters are written out by hand, as torch.profiler.schedule(wait, warmup,
// active) has them; its steps count from 0.
#include "titanium/train/profiler.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace titanium::train
