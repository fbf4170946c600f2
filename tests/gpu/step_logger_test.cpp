#include "titanium/train/report/step_logger.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/gpu/gpu_test.h"
#include "tests/support/json_lines.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/train/trainer.h"

namespace titanium::train {
namespace {

// Work for the current stream that takes the device a good part of a second, with few launches.
class LongWork {
 public:
  LongWork() : a_(at::zeros({16384, 16384}, at::TensorOptions(at::kBFloat16).device(at::kCUDA))), b_(at::mm(a_, a_)) {}

  void queue() {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(a_.device());
    begin_.record(stream);
    for (int i = 0; i < 40; ++i) at::mm_out(b_, a_, a_);
    end_.record(stream);
  }
  bool done() const { return end_.query(); }
  double seconds() const { return begin_.elapsedTime(end_) / 1000; }

 private:
  Tensor a_, b_;
  c10::Event begin_{at::kCUDA, c10::EventFlag::BACKEND_DEFAULT}, end_{at::kCUDA, c10::EventFlag::BACKEND_DEFAULT};
};

JobConfig debug_config() {
  JobConfig config;
  config.training.local_batch_size = 2;
  config.training.seq_len = 256;
  config.training.steps = 10;
  config.lr_scheduler.warmup_steps = 2;
  return config;
}

class GpuLog : public test::GpuTest {
 protected:
  void SetUp() override {
    test::GpuTest::SetUp();
    if (IsSkipped()) return;
    run_.emplace(build_train_state(debug_config(), gpu_));  // first: the allocator has no statistics before it is used
    monitor_.emplace(gpu_);
    metrics_.emplace(MetricsOptions{.log_freq = 2, .dump_folder = folder_}, real_sources(*monitor_));
    work_.emplace();
    logger_.emplace(*run_, *metrics_);
    logger_->add(train_step(*run_).value());
    logger_->flush();
  }

  std::vector<nlohmann::json> lines() const { return test::json_lines(folder_ / "metrics.jsonl"); }

  const std::filesystem::path folder_ = test::test_folder();
  std::optional<MemoryMonitor> monitor_;
  std::optional<Metrics> metrics_;
  std::optional<TrainState> run_;
  std::optional<LongWork> work_;
  std::optional<StepLogger> logger_;
};

TEST_F(GpuLog, TheFirstStepIsThereWhenItIsFlushed) {
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_EQ(lines()[0]["step"], 1);
}

TEST_F(GpuLog, AStepIsLoggedAfterTheNextOneIsQueuedAndWaitsForNothingElse) {
  const StepReport second = train_step(*run_).value();
  const int64_t tokens = run_->tokens_seen;
  work_->queue();
  logger_->add(second);
  EXPECT_FALSE(work_->done());  // the host did not wait for what is queued before the results
  EXPECT_EQ(lines().size(), 1U);

  const StepReport third = train_step(*run_).value();
  work_->queue();
  logger_->add(third);
  EXPECT_FALSE(work_->done());  // nor for what is queued after them
  ASSERT_EQ(lines().size(), 2U);
  const nlohmann::json line = lines().back();
  EXPECT_EQ(line["step"], 2);
  EXPECT_EQ(line["tokens"], tokens);
  EXPECT_NEAR(line["loss"], second.loss.item<double>(), 1e-7);
  EXPECT_NEAR(line["grad_norm"], second.grad_norm.item<double>(), 1e-7);
  EXPECT_NEAR(line["lr"], second.lr, 1e-12);
}

TEST_F(GpuLog, TimeIsThatOfTheDeviceHoweverLateALineIsLogged) {
  logger_->add(train_step(*run_).value());
  work_->queue();
  synchronize_gpu();
  logger_->add(train_step(*run_).value());  // logs the second step, long after it was done
  logger_->add(train_step(*run_).value());
  logger_->flush();
  const auto all = lines();
  ASSERT_EQ(all.size(), 3U);
  const double second = all[1]["time_s"], fourth = all[2]["time_s"];
  EXPECT_LT(all[0]["time_s"].get<double>(), second);
  EXPECT_GE(fourth - second, work_->seconds());  // the work was between the two
}

TEST_F(GpuLog, ResultsThatAreNotFiniteEndTheRunOneStepLater) {
  StepReport second = train_step(*run_).value();
  second.grad_norm = at::scalar_tensor(INFINITY, at::TensorOptions(at::kDouble).device(gpu_));
  EXPECT_NO_THROW(logger_->add(second));
  const StepReport third = train_step(*run_).value();
  try {
    logger_->add(third);
    FAIL() << "a norm that is not finite was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("not finite at step 2 ("), std::string::npos) << error.what();
  }
  EXPECT_EQ(lines().back()["step"], 2);
}

using GpuRun = test::GpuTest;

TEST_F(GpuRun, DoesNotSaveAStepThatIsNotFinite) {
  const std::filesystem::path folder = test::test_folder();
  config::LoadedConfig loaded;
  loaded.config = debug_config();
  loaded.config.job.dump_folder = folder.string();
  loaded.config.metrics.log_freq = 1;
  loaded.config.optimizer.lr = 1e38;  // good for one step
  loaded.config.checkpoint.enable = true;
  loaded.config.checkpoint.interval = 2;
  const std::atomic<bool> never = false;
  EXPECT_THROW(train(loaded, {never, [](const std::string& line) { FAIL() << line; }}), Error);
  EXPECT_EQ(test::json_lines(folder / "metrics.jsonl").back()["step"], 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "checkpoint" / "step-2"));
}

}  // namespace
}  // namespace titanium::train
