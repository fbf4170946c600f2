#include "titanium/train/report/step_logger.h"

#include <ATen/ops/scalar_tensor.h>

#include "tests/support/json_lines.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_run.h"
#include "titanium/base/error.h"

namespace titanium::train {
namespace {

// A tiny run on the CPU that logs every second step.
class CpuLog : public ::testing::Test {
 protected:
  TrainState build() {
    const JobConfig config = test::tiny_config();
    return build_train_state(
        config, at::kCPU, nullptr,
        plan_model(config, 1, 0, std::make_unique<models::llama3::Llama3>(test::tiny_args(/*tied=*/false))));
  }

  std::vector<nlohmann::json> lines() const { return test::json_lines(folder_ / "metrics.jsonl"); }

  const std::filesystem::path folder_ = test::test_folder();
  MemoryMonitor monitor_{at::kCPU};
  Metrics metrics_{{.log_freq = 2, .dump_folder = folder_}, real_sources(monitor_)};
  TrainState run_ = build();
  StepLogger logger_{run_, metrics_};
};

TEST_F(CpuLog, HasAStepBeforeTheNextOneBegins) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 4; ++step) {
    const StepReport report = train_step(run_).value();
    logger_.add(report);
    if (step == 3) {
      EXPECT_EQ(lines().size(), 2U);
      continue;
    }
    const nlohmann::json line = lines().back();
    steps.push_back(line["step"]);
    EXPECT_NEAR(line["loss"], report.loss.item<double>(), 1e-8);
    EXPECT_NEAR(line["grad_norm"], report.grad_norm.item<double>(), 1e-8);
    EXPECT_NEAR(line["lr"], report.lr, 1e-12);
    EXPECT_EQ(line["tokens"], run_.tokens_seen);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 4}));
  logger_.flush();
  EXPECT_EQ(lines().size(), 3U);  // nothing is logged twice
}

TEST_F(CpuLog, ResultsThatAreNotFiniteEndTheRunAfterTheirLine) {
  logger_.add(train_step(run_).value());
  StepReport report = train_step(run_).value();
  report.grad_norm = at::scalar_tensor(INFINITY, at::kDouble);
  try {
    logger_.add(report);
    FAIL() << "a norm that is not finite was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("not finite at step 2 ("), std::string::npos) << error.what();
  }
  EXPECT_EQ(lines().back()["step"], 2);
  EXPECT_TRUE(lines().back()["grad_norm"].is_null());
}

}  // namespace
}  // namespace titanium::train
