#include "titanium/train/report/metrics.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/file_size_limit.h"
#include "tests/support/json_lines.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/log.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;

using test::json_lines;
using test::test_folder;

StepResults results_of(int64_t step, double finished) {
  return {.step = step,
          .loss = 2.5,
          .max_loss = 3.5,
          .grad_norm = 0.5,
          .lr = 1e-4,
          .tokens_seen = 1000 * step,
          .finished = finished};
}

// A run whose clock and memory the test sets.
struct TimedRun {
  explicit TimedRun(const MetricsOptions& options)
      : metrics(options, {.clock = [this] { return now; },
                          .memory_peak = [this] { return memory; },
                          .reset_memory_peak = [this] { ++memory_resets; }}) {}

  // The message of the line that `action` logs.
  template <typename Action>
  std::string logged(Action action) {
    ::testing::internal::CaptureStdout();
    log_to_stdout(LogLevel::kInfo);
    action();
    std::string line = ::testing::internal::GetCapturedStdout();
    line = line.substr(line.find("INFO - ") + 7);
    return line.substr(0, line.find('\n'));
  }

  // A step that is logged as soon as it is done.
  void log(int64_t step) { metrics.log(results_of(step, now), metrics.end_interval()); }

  double now = 100;
  MemoryPeak memory{.max_active_gib = 1, .max_active_percent = 10, .max_reserved_gib = 2, .max_reserved_percent = 20};
  int memory_resets = 0;
  Metrics metrics;
};

MetricsOptions options_in(const fs::path& folder) {
  return {
      .color = false, .dump_folder = folder, .flops_per_token = 6e9, .peak_flops = 100e12, .non_data_parallel_size = 4};
}

TEST(Metrics, RatesAreTokensPerSecondOfOneDevice) {
  TimedRun run(options_in(test_folder()));
  run.now = 150;  // building took 50 seconds, which count nowhere
  run.metrics.start();
  run.metrics.count_tokens(40'000);
  run.metrics.count_tokens(40'000);
  run.now = 152;
  // 80,000 tokens in 2 s, shared by 4 ranks: 10,000 tps; 6e9 * 1e4 = 60 TFLOPS of 100.
  EXPECT_EQ(run.logged([&] { run.log(1); }),
            "step:  1  loss:  2.50000  grad_norm:  0.5000  memory:  2.00GiB(20.00%)  tps: 10,000  tflops: 60.00  mfu: "
            "60.00%");
}

TEST(Metrics, EachLogBeginsANewInterval) {
  const fs::path folder = test_folder();
  TimedRun run(options_in(folder));
  run.metrics.count_tokens(8'000);
  run.now += 1;
  run.log(1);
  EXPECT_EQ(run.memory_resets, 2);  // at the start and at the log
  run.metrics.count_tokens(4'000);
  run.now += 1;
  run.log(10);
  const auto lines = json_lines(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["tps"], 2'000);
  EXPECT_EQ(lines[1]["tps"], 1'000);
  EXPECT_EQ(lines[1]["time_s"], 2);
}

TEST(Metrics, AStepThatIsLoggedLateHasNothingOfTheNextOnes) {
  const fs::path folder = test_folder();
  TimedRun run(options_in(folder));
  run.metrics.count_tokens(8'000);
  const double finished = run.now + 1;
  const IntervalCounts counts = run.metrics.end_interval();
  run.memory.max_reserved_gib = 3;  // of the next step, as are the tokens and the time until the line is logged
  run.metrics.count_tokens(4'000);
  run.now += 1.5;
  run.metrics.log(results_of(10, finished), counts);
  run.now = finished + 2;
  run.log(20);
  const auto lines = json_lines(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["tps"], 2'000);
  EXPECT_EQ(lines[0]["memory_gib"], 2);
  EXPECT_EQ(lines[0]["time_s"], 1);
  EXPECT_EQ(lines[1]["tps"], 500);
  EXPECT_EQ(lines[1]["memory_gib"], 3);
  EXPECT_EQ(lines[1]["time_s"], 3);
}

TEST(Metrics, WaitsForDataBelongToTheStepsThatWaited) {
  TimedRun run(options_in(test_folder()));
  run.metrics.count_data_loading(0.25);
  run.metrics.count_data_loading(0.5);
  const IntervalCounts first = run.metrics.end_interval();
  run.metrics.count_data_loading(2);
  run.metrics.log(results_of(10, run.now + 1), first);
  const IntervalCounts second = run.metrics.end_interval();
  EXPECT_EQ(first.loading_seconds, 0.75);
  EXPECT_EQ(first.fetches, 2);
  EXPECT_EQ(second.loading_seconds, 2);
  EXPECT_EQ(second.fetches, 1);
}

TEST(Metrics, LogsTheFirstStepAndMultiplesOfTheFrequency) {
  const TimedRun run(options_in(test_folder()));
  std::vector<int64_t> logged;
  for (int64_t step = 1; step <= 30; ++step) {
    if (run.metrics.should_log(step)) logged.push_back(step);
  }
  EXPECT_EQ(logged, (std::vector<int64_t>{1, 10, 20, 30}));
}

TEST(Metrics, ValidationTakesNoTimeFromTraining) {
  const fs::path folder = test_folder();
  TimedRun run(options_in(folder));
  run.metrics.count_tokens(4'000);
  run.now += 1;
  run.metrics.begin_validation();
  run.metrics.count_tokens(80'000);
  run.now += 10;
  EXPECT_EQ(run.logged([&] { run.metrics.log_validation(5, 4.25); }),
            "validate step:  5  loss:  4.2500  memory:  2.00GiB(20.00%)  tps: 2,000");
  run.metrics.count_tokens(4'000);
  run.now += 1;
  run.log(10);
  const auto lines = json_lines(folder / "metrics.jsonl");
  EXPECT_EQ(lines.at(0)["validation_loss"], 4.25);
  EXPECT_FALSE(lines.at(0).contains("set"));
  EXPECT_EQ(lines.at(1)["tps"], 1'000);  // 8,000 in 2 s, over 4 ranks
}

TEST(Metrics, EverySetHasItsValidationLoss) {
  const fs::path folder = test_folder();
  TimedRun run(options_in(folder));
  for (const auto& [set, loss] : {std::pair("web", 4.25), {"held \"out\"", 3.5}}) {
    run.metrics.begin_validation();
    run.now += 1;
    run.metrics.log_validation(20, loss, set);
  }
  const auto lines = json_lines(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["set"], "web");
  EXPECT_EQ(lines[1]["set"], "held \"out\"");
  EXPECT_EQ(lines[1]["validation_loss"], 3.5);
  EXPECT_EQ(lines[1]["step"], 20);
}

TEST(Metrics, CpuClaimsNoMfu) {
  const fs::path folder = test_folder();
  MetricsOptions options = options_in(folder);
  options.peak_flops.reset();
  TimedRun run(options);
  run.now += 1;
  EXPECT_TRUE(run.logged([&] { run.log(1); }).ends_with("mfu: N/A"));
  EXPECT_TRUE(json_lines(folder / "metrics.jsonl").at(0)["mfu"].is_null());
}

TEST(Metrics, OtherRanksWriteNoFiles) {
  const fs::path folder = test_folder();
  MetricsOptions options = options_in(folder);
  options.is_metrics_rank = false;
  options.enable_tensorboard = true;
  TimedRun run(options);
  run.now += 1;
  run.log(1);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(Metrics, TensorBoardFilesLieInAFolderNamedByTheMinute) {
  const fs::path folder = test_folder();
  MetricsOptions options = options_in(folder);
  options.enable_jsonl = false;
  options.enable_tensorboard = true;
  const TimedRun run(options);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder).string());
  }
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].find("tb/20"), 0U);
  EXPECT_EQ(files[0].substr(11, 1), "-");
  EXPECT_EQ(files[0].find("/events.out.tfevents."), 16U);
}

TEST(MetricsJsonl, HasAllKeysWithNineDigits) {
  const fs::path path = test_folder() / "metrics.jsonl";
  MetricsJsonl jsonl(path, 0);
  jsonl.write({.step = 7,
               .loss = 1.0 / 3,
               .max_loss = INFINITY,
               .grad_norm = 123456789.123,
               .lr = 8e-4,
               .tps = 1e4,
               .tflops = 2.5,
               .mfu = std::nullopt,
               .memory_gib = 0.125,
               .memory_active_gib = 0.1,
               .tokens = 12'345'678'901,
               .time_s = 1.5,
               .step_s = 0.25,
               .data_wait_percent = 12.5,
               .unix_s = 1234567890.25});
  EXPECT_EQ(read_file(path, "metrics"),
            R"({"step": 7, "loss": 0.333333333, "max_loss": null, "grad_norm": 123456789, "lr": 0.0008, "tps": 10000, )"
            R"("tflops": 2.5, "mfu": null, "memory_gib": 0.125, "memory_active_gib": 0.1, )"
            R"("tokens": 12345678901, "time_s": 1.5, "step_s": 0.25, "data_wait_percent": 12.5, )"
            R"("unix_s": 1234567890.250})"
            "\n");
}

TEST(MetricsJsonl, HasTheBalanceOfExpertsWhereThereAreSome) {
  const fs::path path = test_folder() / "metrics.jsonl";
  MetricsJsonl jsonl(path, 0);
  jsonl.write({.step = 1, .experts = {{.layer = 3, .max_over_mean = 1.5, .entropy = 0.75, .dead = 2}, {.layer = 4}}});
  const auto experts = json_lines(path).at(0)["experts"];
  EXPECT_EQ(
      experts.dump(),
      R"([{"dead":2,"entropy":0.75,"layer":3,"max_over_mean":1.5},{"dead":0,"entropy":0,"layer":4,"max_over_mean":0}])");
}

TEST(MetricsJsonl, ResumedRunKeepsLinesUpToItsStepAndAFreshOneNone) {
  const fs::path path = test_folder() / "metrics.jsonl";
  {
    MetricsJsonl first(path, 0);
    for (const int64_t step : {1, 10, 20, 30}) first.write({.step = step});
  }
  write_file_atomically(path, read_file(path, "metrics") + "{\"step\": 4");  // the line of a crash
  MetricsJsonl(path, 20).write({.step = 30, .loss = 5});
  const auto lines = json_lines(path);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[2]["step"], 20);
  EXPECT_EQ(lines[3]["loss"], 5);
  const MetricsJsonl fresh(path, 0);
  EXPECT_EQ(read_file(path, "metrics"), "");
}

// Three steps of a run whose disk is full at the second.
TEST(MetricsJsonl, AFullDiskDoesNotEndTheRunAndLosesNothing) {
  const fs::path path = test_folder() / "metrics.jsonl";
  MetricsJsonl jsonl(path, 0);
  jsonl.write({.step = 1});
  {
    const test::FileSizeLimit full(fs::file_size(path) + 10);
    EXPECT_NO_THROW(jsonl.write({.step = 2}));
  }
  jsonl.write({.step = 3});
  const auto lines = json_lines(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["step"], 2);
  EXPECT_EQ(lines[2]["step"], 3);
}

TEST(MemoryMonitor, CpuPeakFollowsTheProcess) {
  MemoryMonitor monitor(at::kCPU);
  monitor.reset();  // what ran before in this process may have taken more
  const MemoryPeak before = monitor.peak();
  EXPECT_GT(before.max_reserved_gib, 0);
  EXPECT_GT(before.max_reserved_percent, 0);
  constexpr size_t kBytes = size_t{256} << 20U;
  // From the system: the allocator may have memory of earlier tests that counts already.
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  ::munmap(memory, kBytes);
  const double peak = monitor.peak().max_reserved_gib;  // the memory is gone, the peak stays
  EXPECT_GT(peak, before.max_reserved_gib + 0.2);
  monitor.reset();
  EXPECT_LT(monitor.peak().max_reserved_gib, peak - 0.2);
  EXPECT_NE(monitor.capacity_line().find("CPU capacity: "), std::string::npos);
}

}  // namespace
}  // namespace titanium::train
