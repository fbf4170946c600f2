#include "titanium/observe/run/run_status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace titanium::observe {
namespace {

struct TimedStatus {
  double now = 1000;
  RunStatus status{500, 2, 60, [this] { return now; }};
};

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(RunStatus, SaysNothingThatIsNotKnownYet) {
  const TimedStatus run;
  const std::string text = run.status.open_metrics();
  EXPECT_TRUE(has_line(text, "titanium_step 0"));
  EXPECT_TRUE(has_line(text, "titanium_steps_planned 500"));
  EXPECT_TRUE(has_line(text, "titanium_restarts_total 2"));
  EXPECT_EQ(text.find("titanium_loss"), std::string::npos);
  EXPECT_EQ(text.find("checkpoint"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
}

TEST(RunStatus, HasTheLastLoggedValuesAndAges) {
  TimedStatus run;
  run.now = 1010;
  run.status.step_finished(12);
  run.status.logged({.step = 10, .loss = 2.5, .tps = 1234.5, .mfu = 41.25, .data_wait_percent = 3, .tokens = 99});
  run.status.validated(2.75);
  run.status.validated(3.5, "held \"out\"");
  run.now = 1012;
  run.status.checkpoint_saved(12);
  run.now = 1015;
  const std::string text = run.status.open_metrics();
  EXPECT_TRUE(has_line(text, "titanium_step 12"));
  EXPECT_TRUE(has_line(text, "titanium_logged_step 10"));
  EXPECT_TRUE(has_line(text, "titanium_loss 2.5"));
  EXPECT_TRUE(has_line(text, "titanium_tokens_per_second 1234.5"));
  EXPECT_TRUE(has_line(text, "titanium_mfu_percent 41.25"));
  EXPECT_TRUE(has_line(text, "titanium_data_wait_percent 3"));
  EXPECT_TRUE(has_line(text, "titanium_tokens_total 99"));
  EXPECT_TRUE(has_line(text, "titanium_validation_loss 2.75"));
  EXPECT_TRUE(has_line(text, R"(titanium_validation_loss{set="held \"out\""} 3.5)"));
  EXPECT_TRUE(has_line(text, "titanium_last_step_age_seconds 5"));
  EXPECT_TRUE(has_line(text, "titanium_checkpoint_step 12"));
  EXPECT_TRUE(has_line(text, "titanium_checkpoint_age_seconds 3"));
}

TEST(RunStatus, NotFiniteValuesHaveTheirNames) {
  TimedStatus run;
  run.status.logged({.loss = NAN, .grad_norm = INFINITY});
  EXPECT_TRUE(has_line(run.status.open_metrics(), "titanium_loss NaN"));
  EXPECT_TRUE(has_line(run.status.open_metrics(), "titanium_grad_norm +Inf"));
}

TEST(RunStatus, IsHealthyUntilNoStepHasEndedForTooLong) {
  TimedStatus run;
  run.status.step_finished(7);
  run.now += 59;
  const HttpResponse good = run.status.answer({.path = "/health"});
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(nlohmann::json::parse(good.body),
            nlohmann::json({{"status", "ok"}, {"step", 7}, {"seconds_since_last_step", 59.0}}));
  run.now += 2;
  const HttpResponse bad = run.status.answer({.path = "/health"});
  EXPECT_EQ(bad.status, 503);
  EXPECT_EQ(nlohmann::json::parse(bad.body)["status"], "stalled");
  run.status.step_finished(8);
  EXPECT_EQ(run.status.answer({.path = "/health"}).status, 200);
}

TEST(RunStatus, OtherPathsAreNotThere) {
  const TimedStatus run;
  EXPECT_EQ(run.status.answer({.path = "/"}).status, 404);
  EXPECT_EQ(run.status.answer({.path = "/metrics"}).type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

}  // namespace
}  // namespace titanium::observe
