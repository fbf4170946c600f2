// What the recorder remembers of collectives.
#include "titanium/comm/flight_recorder.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "titanium/comm/world.h"

namespace titanium::comm {
namespace {

using State = CollectiveRecord::State;

TEST(FlightRecorder, SaysWhatIsWaitedForElseWhatIsOpenElseTheLast) {
  FlightRecorder recorder;
  const auto fsdp = recorder.add_group("fsdp", 0, {0, 1}), dp = recorder.add_group("dp", 0, {0, 2});
  recorder.set_step(7);
  EXPECT_EQ(recorder.describe_current(), "no collective, in step 7");
  const uint64_t gather = recorder.issue({.name = "all_gather", .group = fsdp});
  const uint64_t reduce = recorder.issue({.name = "all_reduce", .group = dp});
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
  const auto group = recorder.add_group("pp", 0, {0, 1});
  for (int i = 0; i < 10; ++i) {
    recorder.finished(recorder.issue({.name = "send", .group = group, .peer = 1, .bytes = i}), i == 9);
  }
  recorder.finished(2, true);  // long forgotten; the eighth has its place
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(records[i].bytes, 7 + i);
  EXPECT_EQ(records[0].state, State::kFinished);
  EXPECT_EQ(records[1].state, State::kFinished);
  EXPECT_EQ(records[2].state, State::kFailed);
  EXPECT_EQ(records[2].record_id, 9u);
}

TEST(FlightRecorder, CountsCollectivesOfAGroupAndMessagesOfADirection) {
  FlightRecorder recorder;
  const auto group = recorder.add_group("pp", 1, {0, 1, 2}), other = recorder.add_group("dp", 0, {1, 5});
  recorder.issue({.name = "barrier", .group = group});
  recorder.issue({.name = "send", .group = group, .peer = 2});
  recorder.issue({.name = "receive", .group = group, .peer = 0});
  recorder.issue({.name = "send", .group = group, .peer = 2});
  recorder.issue({.name = "send", .group = group, .peer = 0});
  recorder.issue({.name = "all_reduce", .group = other});
  recorder.issue({.name = "barrier", .group = group});
  std::vector<uint64_t> numbers;
  for (const CollectiveRecord& record : recorder.records()) numbers.push_back(record.number);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 1, 1, 2, 1, 1, 2}));
}

TEST(FlightRecorder, TwoGroupsOfOneAxisHaveTwoNames) {
  FlightRecorder recorder;
  const auto first = recorder.add_group("fsdp", 0, {0, 1}), second = recorder.add_group("fsdp", 0, {0, 1});
  const auto others = recorder.add_group("fsdp", 0, {0, 2}), peer = recorder.add_group("fsdp", 1, {0, 1});
  EXPECT_EQ(first->name, "fsdp");
  EXPECT_EQ(second->name, "fsdp (2)");
  EXPECT_EQ(others->name, "fsdp");
  EXPECT_EQ(peer->name, "fsdp");  // of another rank that is a thread of this process
  EXPECT_EQ(recorder.groups().size(), 4u);
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
  EXPECT_EQ(records[0].input, (c10::SmallVector<int64_t, 4>{8}));
  EXPECT_EQ(records[0].output, (c10::SmallVector<int64_t, 4>{8}));
  EXPECT_EQ(records[1].bytes, 16);
  EXPECT_EQ(records[1].dtype, at::kBFloat16);
  EXPECT_EQ(records[1].input, (c10::SmallVector<int64_t, 4>{4}));
  EXPECT_EQ(records[1].output, (c10::SmallVector<int64_t, 4>{8}));
  EXPECT_EQ(records[1].state, State::kIssued);
  EXPECT_EQ(records[2].state, State::kFinished);
  EXPECT_LE(records[2].issued, records[2].waited);
  EXPECT_LE(records[2].waited, records[2].finished);
  EXPECT_EQ(flight_recorder().describe_current(), "all_gather on axis dp in step 3");
}

}  // namespace
}  // namespace titanium::comm
