#include "titanium/observe/run/run_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/observe/page/thin.h"
#include "titanium/observe/run/run_summary.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;
using test::test_folder;

void append(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

std::string record(int64_t step, double loss, double time) {
  return fmt::format(R"({{"step": {}, "loss": {}, "tps": 100, "mfu": null, "tokens": {}, "time_s": {}, "unix_s": {}}})",
                     step, loss, 1000 * step, time, 5000 + time) +
         "\n";
}

std::string start(int64_t step, double unix_s) {
  return fmt::format(R"({{"event": "start", "unix_s": {}, "step": {}, "total_steps": 100, "log_freq": 10}})", unix_s,
                     step) +
         "\n";
}

std::vector<double> column(const RunFolder& run, const std::string& name) {
  const std::vector<double>* found = run.data().columns.find(name);
  return found == nullptr ? std::vector<double>() : *found;
}

TEST(RunFolder, ReadsWhatIsAddedLineByLine) {
  const fs::path folder = test_folder();
  append(folder / "metrics.jsonl", record(1, 4, 1) + R"({"step": 10, "lo)");  // half-written
  RunFolder run(folder);
  EXPECT_EQ(column(run, "loss"), (std::vector<double>{4}));
  EXPECT_FALSE(run.refresh());
  append(folder / "metrics.jsonl", "ss\": 3}\n" + record(20, 2, 3));
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(run.data().columns.steps, (std::vector<double>{1, 10, 20}));
  EXPECT_EQ(column(run, "loss"), (std::vector<double>{4, 3, 2}));
  EXPECT_TRUE(std::isnan(column(run, "tps").at(1)));
  EXPECT_EQ(run.data().columns.last("tps"), 100);
  EXPECT_EQ(column(run, "mfu"), std::vector<double>());
}

TEST(RunFolder, DamagedLinesAreCountedAndPassedOver) {
  const fs::path folder = test_folder();
  append(folder / "metrics.jsonl",
         record(1, 4, 1) + "{\"step\": 5, \"lo\n\xff\n[1]\n{\"loss\": 3}\n" + record(10, 3, 2));
  append(folder / "run.jsonl", start(0, 5000) + "garbage\n{\"no_event\": 1}\n");
  const RunFolder run(folder);
  EXPECT_EQ(run.data().columns.steps, (std::vector<double>{1, 10}));
  EXPECT_EQ(run.data().damaged.at("metrics.jsonl"), 4);
  EXPECT_EQ(run.data().damaged.at("run.jsonl"), 2);
}

TEST(RunFolder, ARunThatGoesOnDrawsItsImagesAgain) {
  const fs::path folder = test_folder();
  const auto drew = [](int64_t step) {
    return fmt::format(R"({{"event": "images", "step": {}, "images": [{{"file": "{}.png", "caption": "c"}}]}})", step,
                       step) +
           "\n";
  };
  append(folder / "run.jsonl", start(0, 5000) + drew(10) + drew(20) + start(10, 6000));
  RunFolder run(folder);
  ASSERT_EQ(run.data().images.size(), 1U);
  EXPECT_EQ(run.data().images.at(10).at(0).file, "10.png");
  append(folder / "run.jsonl", drew(20));
  run.refresh();
  EXPECT_EQ(run.data().images.at(20).at(0).caption, "c");
}

TEST(RunFolder, NumbersThatMakeNoSenseAreLeftOut) {
  const fs::path folder = test_folder();
  append(folder / "metrics.jsonl", "{\"step\": -7, \"loss\": 1}\n{\"step\": -7, \"loss\": 2}\n{\"step\": 1e300}\n");
  append(folder / "run.jsonl", R"({"event": "start", "unix_s": "noon", "total_steps": [], "log_freq": null})"
                               "\n"
                               R"({"event": "error", "rank": 1e300, "message": "boom"})"
                               "\n");
  const RunFolder run(folder);
  EXPECT_EQ(run.data().columns.steps, (std::vector<double>{-7}));
  EXPECT_EQ(column(run, "loss"), (std::vector<double>{2}));
  EXPECT_EQ(run.data().damaged.at("metrics.jsonl"), 1);
  EXPECT_EQ(run.data().error->rank, 0);
  EXPECT_EQ(summarize(run.data(), 6000).total_steps, 0);
}

// A wide record and many narrow ones: a table of all of them would be far larger than the file.
TEST(RunFolder, TablesHaveALargestSize) {
  Columns columns{.most_numbers = 25};
  EXPECT_TRUE(columns.add(nlohmann::json::parse(R"({"step": 1, "a": 1, "b": 2, "c": 3, "d": 4})")));
  for (int step = 2; step <= 5; ++step) EXPECT_TRUE(columns.add({{"step", step}, {"e", 1}}));
  EXPECT_EQ(columns.find("e")->size(), 5U);
  EXPECT_FALSE(columns.add({{"step", 6}}));  // would make it 30
  EXPECT_EQ(columns.steps.size(), 5U);
}

TEST(RunFolder, AReplacedFileIsReadAgain) {
  const fs::path folder = test_folder();
  write_file_atomically(folder / "metrics.jsonl", record(1, 4, 1) + record(10, 3, 2) + record(20, 2, 3));
  RunFolder run(folder);
  write_file_atomically(folder / "metrics.jsonl", record(1, 4, 1));  // as a resumed run does
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(run.data().columns.steps, (std::vector<double>{1}));
}

TEST(RunFolder, StepsThatAreTrainedAgainReplaceTheOldOnes) {
  const fs::path folder = test_folder();
  append(folder / "metrics.jsonl", record(1, 4, 1) + record(10, 3, 2) + record(20, 2, 3) + record(10, 2.5, 1));
  const RunFolder run(folder);
  EXPECT_EQ(run.data().columns.steps, (std::vector<double>{1, 10}));
  EXPECT_EQ(column(run, "loss"), (std::vector<double>{4, 2.5}));
}

TEST(RunFolder, NestedNumbersHaveNamesOfTheirOwn) {
  const fs::path folder = test_folder();
  append(
      folder / "metrics.jsonl",
      R"({"step": 1, "tokens_by_source": {"web": 7, "code": 3}, "experts": [{"layer": 2, "dead": 1}, {"layer": 4, "dead": 0}]})"
      "\n");
  const RunFolder run(folder);
  EXPECT_EQ(column(run, "tokens_by_source/web"), (std::vector<double>{7}));
  EXPECT_EQ(column(run, "experts/layer_2/dead"), (std::vector<double>{1}));
  EXPECT_EQ(column(run, "experts/layer_4/dead"), (std::vector<double>{0}));
}

TEST(RunFolder, EventsOfStepsThatAreTrainedAgainAreGone) {
  const fs::path folder = test_folder();
  append(folder / "run.jsonl", start(0, 5000) +
                                   R"({"event": "checkpoint", "step": 20, "unix_s": 5002, "seconds": 1})"
                                   "\n"
                                   R"({"event": "validation", "step": 20, "loss": 3})"
                                   "\n"
                                   R"({"event": "validation", "step": 20, "loss": 4, "set": "web"})"
                                   "\n"
                                   R"({"event": "validation", "step": 30, "loss": 2})"
                                   "\n"
                                   R"({"event": "error", "rank": 3, "unix_s": 5004, "message": "boom"})"
                                   "\n" +
                                   start(20, 5010));
  const RunFolder run(folder);
  const RunData& data = run.data();
  EXPECT_EQ(data.checkpoints.size(), 1U);
  EXPECT_EQ(data.validation, (std::map<std::string, std::map<double, double>>{{"", {{20, 3}}}, {"web", {{20, 4}}}}));
  ASSERT_EQ(data.restarts.size(), 1U);
  EXPECT_EQ(data.restarts[0].step, 20);
  EXPECT_EQ(data.first_start, 5000);
  ASSERT_TRUE(data.error);
  EXPECT_EQ(data.error->rank, 3);
  EXPECT_EQ(data.error->message, "boom");
}

TEST(RunFolder, RanksHaveFilesOfTheirOwn) {
  const fs::path folder = test_folder();
  append(folder / "metrics.jsonl", record(1, 4, 1));
  fs::create_directories(folder / "metrics_by_rank");
  append(folder / "metrics_by_rank" / "rank_3.jsonl", R"({"step": 1, "step_s": 0.5})"
                                                      "\n");
  append(folder / "metrics_by_rank" / "notes.txt", "not a rank\n");
  const RunFolder run(folder);
  ASSERT_EQ(run.data().ranks.size(), 1U);
  EXPECT_EQ(run.data().ranks.at(3).last("step_s"), 0.5);
}

TEST(RunFolder, AFolderWithoutTheFilesIsRefused) {
  const fs::path folder = test_folder();
  try {
    const RunFolder run(folder);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(), folder.string() +
                                " has neither metrics.jsonl nor run.jsonl. Give the job.dump_folder of a run that was "
                                "started with metrics.enable_jsonl.");
  }
}

TEST(RunFolder, ARandomlyDamagedFolderIsReadSomehow) {
  const fs::path folder = test_folder();
  const std::string good = start(0, 5000) + record(1, 4, 1) + record(10, 3, 2) +
                           R"({"event": "validation", "step": 20, "loss": 3})"
                           "\n";
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file_atomically(folder / "metrics.jsonl", bytes);
    write_file_atomically(folder / "run.jsonl", bytes);
    const RunFolder run(folder);
    EXPECT_LE(run.data().columns.steps.size(), 4U);
    EXPECT_FALSE(to_string(summarize(run.data(), 6000).state).empty());
  }
}

TEST(RunSummary, TimeLeftFollowsFromTheLastSteps) {
  const fs::path folder = test_folder();
  append(folder / "run.jsonl", start(0, 4990));
  append(folder / "metrics.jsonl", record(1, 4, 100) + record(10, 3, 109) + record(20, 2, 119));
  const RunFolder run(folder);
  const RunSummary summary = summarize(run.data(), 5120);
  EXPECT_EQ(summary.state, RunState::kRunning);
  EXPECT_EQ(summary.step, 20);
  EXPECT_EQ(summary.total_steps, 100);
  EXPECT_EQ(summary.step_seconds, 1);
  EXPECT_EQ(summary.seconds_left, 80);
  EXPECT_EQ(summary.tokens, 20'000);
  EXPECT_EQ(summary.elapsed, 130);
  EXPECT_DOUBLE_EQ(*summary.goodput, 119.0 / 130);
}

TEST(RunSummary, GoodputIsThatOfStepsThatStayInAllProcesses) {
  const fs::path folder = test_folder();
  // The first process came to step 19 in 19 s and was gone; the second went on from step 10, and the times begin again.
  append(folder / "run.jsonl", start(0, 5000) + start(10, 5050));
  append(folder / "metrics.jsonl", record(1, 4, 1) + record(10, 3, 10) + record(20, 2, 15));
  EXPECT_DOUBLE_EQ(*summarize(RunFolder(folder).data(), 5100).goodput, (10 + 15) / 100.0);
  fs::remove(folder / "run.jsonl");  // without it, times that decrease tell
  append(folder / "metrics.jsonl", record(30, 2, 5));
  EXPECT_DOUBLE_EQ(summarize(RunFolder(folder).data(), 5100).elapsed, 15 + 5);
}

TEST(RunSummary, ManyRestartsAndManyStepsAreCountedInOnePass) {
  RunData run;
  run.first_start = 1;
  for (int i = 0; i < 300'000; ++i) {
    run.restarts.push_back({.step = 1e6, .unix_s = 1});
    run.columns.steps.push_back(i);
    run.columns.values["time_s"].push_back(i);
  }
  run.restarts.push_back({.step = 9, .unix_s = 1});
  // Steps up to 9 are of the first start, all others of the last.
  EXPECT_DOUBLE_EQ(*summarize(run, 1'000'001).goodput, (9 + 299'999) / 1e6);
}

TEST(RunSummary, StatesFollowFromTheEventsAndTheClock) {
  const fs::path folder = test_folder();
  const auto state = [&](double now) { return to_string(summarize(RunFolder(folder).data(), now).state); };
  append(folder / "run.jsonl", start(0, 5000));
  EXPECT_EQ(state(5001), "starting");
  append(folder / "metrics.jsonl", record(1, 4, 1) + record(10, 3, 10));
  EXPECT_EQ(state(5020), "running");
  EXPECT_EQ(state(9000), "no news");
  append(folder / "run.jsonl", R"({"event": "error", "rank": 0, "unix_s": 5030, "message": "boom"})"
                               "\n");
  EXPECT_EQ(state(5031), "failed");
  append(folder / "run.jsonl", start(10, 5040));
  EXPECT_EQ(state(5041), "running");
  append(folder / "run.jsonl", R"({"event": "end", "step": 100, "how": "completed"})"
                               "\n");
  EXPECT_EQ(state(9000), "completed");
}

TEST(Thin, KeepsTheExtremesOfEveryRange) {
  std::vector<double> values(1'000'000, 1);
  values[123'456] = 7;
  values[654'321] = -3;
  const std::vector<size_t> kept = thin(values, 1000);
  EXPECT_LE(kept.size(), 1000U);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  EXPECT_TRUE(std::ranges::binary_search(kept, 123'456U));
  EXPECT_TRUE(std::ranges::binary_search(kept, 654'321U));
  EXPECT_EQ(kept.front(), 0U);
  EXPECT_EQ(kept.back(), 999'999U);
}

TEST(Thin, KeepsEverythingThatFitsAndGaps) {
  EXPECT_EQ(thin(std::vector<double>{1, 2, 3}, 100), (std::vector<size_t>{0, 1, 2}));
  std::vector<double> values(1000, NAN);
  values[999] = 1;
  EXPECT_GT(thin(values, 100).size(), 40U);
}

}  // namespace
}  // namespace titanium::observe
