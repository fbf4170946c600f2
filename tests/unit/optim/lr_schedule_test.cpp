#include "titanium/optim/lr_schedule.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"

namespace titanium::optim {
namespace {

TEST(LrSchedule, WarmsUpLinearlyToOneAndDecaysRightAfter) {
  const LrSchedule schedule = plan_lr_schedule({.total_steps = 10, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 3), 1.0);
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 4), 1.0);  // the one step of the stable phase
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 5), 1.0 - 1.0 / 6);
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 9), 1.0 / 6);  // the last step still trains
}

TEST(LrSchedule, DecayRatioLeavesAStablePhase) {
  const LrSchedule schedule = plan_lr_schedule({.total_steps = 100, .warmup_steps = 10, .decay_ratio = 0.2});
  EXPECT_EQ(schedule.stable_steps, 71);
  EXPECT_EQ(schedule.decay_steps, 20);
  for (int64_t step = 9; step < 81; ++step) EXPECT_EQ(lr_factor(schedule, step), 1.0);
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 81), 0.95);
}

TEST(LrSchedule, HalfwayValuesOfEachDecay) {
  LrScheduleOptions options{.total_steps = 8, .min_factor = 0.2};
  const auto factor = [&](LrDecay decay) {
    options.decay = decay;
    return lr_factor(plan_lr_schedule(options), 4);  // progress 4/8
  };
  EXPECT_DOUBLE_EQ(factor(LrDecay::kLinear), 0.2 + 0.8 * 0.5);
  EXPECT_DOUBLE_EQ(factor(LrDecay::kSqrt), 0.2 + 0.8 * (1 - std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(factor(LrDecay::kCosine), 0.2 + 0.8 * 0.5);
}

TEST(LrSchedule, StaysAtTheMinimumAfterTheEnd) {
  const LrSchedule schedule = plan_lr_schedule({.total_steps = 5, .min_factor = 0.1});
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 5), 0.1);
  EXPECT_DOUBLE_EQ(lr_factor(schedule, 500), 0.1);
  EXPECT_DOUBLE_EQ(lr_factor(plan_lr_schedule({.total_steps = 5, .decay_ratio = 0.0}), 500), 1.0);
}

TEST(LrSchedule, PhasesThatDoNotFitAreShortenedWithAWarning) {
  ::testing::internal::CaptureStdout();
  log_to_stdout(LogLevel::kWarning);
  const LrSchedule all_warmup = plan_lr_schedule({.total_steps = 10, .warmup_steps = 200});
  const LrSchedule shorter = plan_lr_schedule({.total_steps = 10, .warmup_steps = 6, .decay_ratio = 0.8});
  const std::string log = ::testing::internal::GetCapturedStdout();
  log_to_stdout(LogLevel::kError);
  EXPECT_EQ(all_warmup.warmup_steps, 10);
  EXPECT_EQ(all_warmup.decay_steps, 0);
  EXPECT_DOUBLE_EQ(lr_factor(all_warmup, 9), 1.0);
  EXPECT_EQ(shorter.decay_steps, 4);
  EXPECT_NE(log.find("Warmup steps (200) exceed total steps (10). Adjusting warmup steps to 10."), std::string::npos);
  EXPECT_NE(log.find("Warmup (6) + decay (8) steps exceed total steps (10). Adjusting decay steps to 4."),
            std::string::npos);
}

TEST(LrSchedule, UnknownDecayIsAUsageError) {
  EXPECT_EQ(parse_lr_decay("cosine"), LrDecay::kCosine);
  EXPECT_THROW(parse_lr_decay("exponential"), UsageError);
}

}  // namespace
}  // namespace titanium::optim
