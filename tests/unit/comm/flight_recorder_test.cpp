// What the recorder remembers of collectives.
#include "titanium/comm/flight_recorder.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/test_folder.h"
#include "titanium/comm/world.h"

namespace titanium::comm {
namespace {

using State = CollectiveRecord::State;

TEST(FlightRecorder, SaysWhatIsWaitedForElseWhatIsOpenElseTheLast) {
  FlightRecorder recorder;
  recorder.set_step(7);
  EXPECT_EQ(recorder.describe_current(), "no collective, in step 7");
  const uint64_t gather = recorder.issue({.name = "all_gather", .axis = "fsdp"});
  const uint64_t reduce = recorder.issue({.name = "all_reduce", .axis = "dp"});
  EXPECT_EQ(recorder.describe_current(), "all_gather on axis fsdp in step 7");
  recorder.waiting(reduce);
  EXPECT_EQ(recorder.describe_current(), "all_reduce on axis dp in step 7");
  recorder.finished(reduce, false);
  recorder.finished(gather, false);
  recorder.set_step(8);
  EXPECT_EQ(recorder.describe_current(), "no collective (the last was all_reduce on axis dp) in step 8");
}

TEST(FlightRecorder, KeepsTheLastOnes) {
  FlightRecorder recorder(3);
  for (int i = 0; i < 10; ++i) recorder.finished(recorder.issue({.name = "send", .axis = "pp", .bytes = i}), i == 9);
  recorder.finished(1, true);  // long forgotten
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(records[i].bytes, 7 + i);
  EXPECT_EQ(records[1].state, State::kFinished);
  EXPECT_EQ(records[2].state, State::kFailed);
}

TEST(FlightRecorder, SeesEveryCollectiveOfAGroup) {
  flight_recorder().set_capacity(100);
  flight_recorder().set_step(3);
  const auto world = make_fake_world(1, 2);
  const GroupPtr group = world->group("dp", {0, 1});
  const Tensor whole = at::zeros({8}, at::kBFloat16), part = at::zeros({4}, at::kBFloat16);
  group->all_reduce(whole, Reduce::kSum)->wait();
  const Work open = group->all_gather(whole, part);
  group->barrier();

  const auto records = flight_recorder().records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_STREQ(records[0].name, "all_reduce");
  EXPECT_EQ(records[1].bytes, 16);
  EXPECT_EQ(records[1].dtype, at::kBFloat16);
  EXPECT_EQ(records[1].state, State::kIssued);
  EXPECT_EQ(records[2].state, State::kFinished);
  EXPECT_EQ(flight_recorder().describe_current(), "all_gather on axis dp in step 3");
}

TEST(FlightRecorder, DumpsJson) {
  const std::filesystem::path folder = test::test_folder();
  FlightRecorder recorder;
  recorder.set_step(2);
  recorder.finished(recorder.issue({.name = "all_gather", .axis = "fsdp", .bytes = 64, .dtype = at::kFloat}), false);
  recorder.issue({.name = "barrier", .axis = "world"});
  recorder.dump(folder / "rank_0.json");
  std::ifstream file(folder / "rank_0.json");
  const auto dump = nlohmann::json::parse(file);
  EXPECT_EQ(dump["step"], 2);
  EXPECT_EQ(dump["collectives"][0]["axis"], "fsdp");
  EXPECT_EQ(dump["collectives"][0]["dtype"], "float32");
  EXPECT_EQ(dump["collectives"][0]["bytes"], 64);
  EXPECT_GE(dump["collectives"][0]["finished"], dump["collectives"][0]["issued"]);
  EXPECT_EQ(dump["collectives"][1]["state"], "issued");
  EXPECT_TRUE(dump["collectives"][1]["finished"].is_null());
}

}  // namespace
}  // namespace titanium::comm
