// Dumps of ranks that are threads, and what the analysis says. PyTorch's reader is tested in
// tests/distributed/flight.py.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/test_folder.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/base/error.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"
#include "titanium/train/flight/analysis.h"
#include "titanium/train/flight/dump.h"

namespace titanium::train {
namespace {

using checkpoint::PickleValue;

FlightEntry entry(const std::string& group, std::vector<int> members, int64_t number, const std::string& state,
                  int64_t time, const std::string& operation = "all_reduce") {
  return {.group = group,
          .axis = group,
          .members = std::make_shared<const std::vector<int>>(std::move(members)),
          .number = number,
          .operation = operation,
          .must_match = operation,
          .state = state,
          .step = 4,
          .created_ns = time,
          .waited_for = state == "started"};
}

TEST(FlightDumps, RanksThatAreThreadsWriteAFileEach) {
  comm::flight_recorder().set_capacity(1000);
  const std::filesystem::path folder = test::test_folder();
  test::run_ranks(3, [&](comm::World& world) {
    const auto group = world.group("threads", {0, 1, 2});
    const Tensor tensor = at::ones({2, 3});
    group->all_reduce(tensor, comm::Reduce::kSum)->wait();
    if (world.rank() == 0) group->send(tensor, 2)->wait();
    if (world.rank() == 2) group->receive(tensor, 0)->wait();
    group->barrier();
  });
  const auto files = write_flight_dumps(comm::flight_recorder(), folder / "rank_");
  ASSERT_EQ(files.size(), 3u);
  const Flights flights = read_flight_dumps(folder);
  ASSERT_EQ(flights.at(0).entries.size(), 3u);
  EXPECT_EQ(flights.at(0).entries[0].operation, "all_reduce of [2, 3] Float");
  EXPECT_EQ(flights.at(0).entries[1].operation, "send of [2, 3] Float");
  EXPECT_EQ(flights.at(2).entries[1].operation, "receive of [2, 3] Float");
  EXPECT_EQ(flights.at(0).entries[1].group, flights.at(2).entries[1].group);
  EXPECT_EQ(*flights.at(0).entries[1].members, (std::vector<int>{0, 2}));
  EXPECT_EQ(flights.at(1).entries.size(), 2u);
  EXPECT_EQ(explain_flights(flights),
            "nothing is wrong: the 3 collectives and messages of 3 ranks fit together, and nobody waits.");
}

TEST(FlightAnalysis, TheRankWhoWaitsForNobodyIsToBlame) {
  // 0 and 1 wait for 2, which waits for 3 in another group; 3 computes.
  Flights flights;
  for (const int rank : {0, 1}) flights[rank].entries = {entry("dp", {0, 1, 2}, 5, "started", 10)};
  flights[2].entries = {entry("dp", {0, 1, 2}, 4, "completed", 1), entry("tp", {2, 3}, 9, "started", 20)};
  flights[3].entries = {entry("tp", {2, 3}, 8, "completed", 2)};
  EXPECT_EQ(
      explain_flights(flights),
      "rank 3 did not join collective 9 on axis tp, step 4 (all_reduce), for which rank 2 waits; the last that it "
      "began was all_reduce, collective 8 on axis tp, step 4, which is completed.");
}

TEST(FlightAnalysis, RanksThatWaitForEachOtherAreAllNamed) {
  Flights flights;
  flights[0].entries = {entry("dp", {0, 1}, 5, "started", 10)};
  flights[1].entries = {entry("tp", {0, 1}, 3, "started", 11, "barrier")};
  EXPECT_EQ(
      explain_flights(flights),
      "ranks wait for each other: rank 0 in collective 5 on axis dp, step 4 (all_reduce) for rank 1; rank 1 in "
      "collective 3 on axis tp, step 4 (barrier) for rank 0. They call the collectives of these groups in different "
      "orders.");
}

TEST(FlightAnalysis, ACollectiveThatAllHaveJoinedHangsElsewhere) {
  Flights flights;
  for (const int rank : {0, 1}) flights[rank].entries = {entry("dp", {0, 1}, 5, "started", 10)};
  EXPECT_EQ(
      explain_flights(flights),
      "all ranks joined collective 5 on axis dp, step 4 (all_reduce) and it did not end on ranks 0 and 1: look at "
      "the network and the devices.");
}

TEST(FlightAnalysis, OfTwoRanksNoneIsInTheMajority) {
  Flights flights;
  flights[0].entries = {entry("dp", {0, 1}, 5, "started", 10, "all_reduce of [4] Float")};
  flights[1].entries = {entry("dp", {0, 1}, 5, "started", 11, "all_reduce of [5] Float")};
  EXPECT_EQ(
      explain_flights(flights),
      "rank 0 called all_reduce of [4] Float and rank 1 called all_reduce of [5] Float as collective 5 on axis dp, "
      "step 4.");
}

TEST(FlightAnalysis, WhatARankHasForgottenIsNotMissing) {
  Flights flights;
  flights[0].entries = {entry("dp", {0, 1}, 1, "scheduled", 1), entry("dp", {0, 1}, 7, "completed", 7)};
  flights[1].entries = {entry("dp", {0, 1}, 7, "completed", 7)};
  flights[1].whole = false;
  EXPECT_EQ(explain_flights(flights),
            "nothing is wrong: the 2 collectives and messages of 2 ranks fit together, and nobody waits.");
}

// Nothing of the group is left in rank 1's records, because it has begun much else since.
TEST(FlightAnalysis, ARankWhoseRecordsBeginLaterMayHaveBeenThere) {
  Flights flights;
  flights[0].entries = {entry("dp", {0, 1}, 1, "started", 1)};
  flights[1].entries = {entry("tp", {1}, 900, "completed", 7)};
  flights[1].whole = false;
  EXPECT_EQ(explain_flights(flights),
            "all ranks joined collective 1 on axis dp, step 4 (all_reduce) and it did not end on rank 0: look at the "
            "network and the devices.");
  flights[1].whole = true;
  EXPECT_TRUE(explain_flights(flights).starts_with("rank 1 did not join collective 1 on axis dp"));
}

// As c10d writes a message of a group of four: its count is that of the rank's messages, and its entry has no step.
PickleValue message_of_nccl(const char* name, int64_t count, const char* state,
                            std::vector<PickleValue> group = {"7", "mesh_pp"}) {
  const PickleValue sizes = PickleValue::list({PickleValue::list({PickleValue(4)})});
  const PickleValue dtypes = PickleValue::list({PickleValue("Float")});
  return PickleValue::dict({{"record_id", count - 1},
                            {"process_group", PickleValue::tuple(std::move(group))},
                            {"collective_seq_id", 0},
                            {"p2p_seq_id", count},
                            {"profiling_name", name},
                            {"time_created_ns", count},
                            {"input_sizes", sizes},
                            {"input_dtypes", dtypes},
                            {"output_sizes", sizes},
                            {"state", state},
                            {"is_p2p", true}});
}

void write_nccl_dump(const std::filesystem::path& file, std::vector<PickleValue> entries) {
  const PickleValue config = PickleValue::dict({{"7", PickleValue::dict({{"ranks", "[4, 5, 6, 7]"}})}});
  std::ofstream(file, std::ios::binary) << checkpoint::write_pickle(
      PickleValue::dict({{"pg_config", config}, {"entries", PickleValue::list(std::move(entries))}}));
}

TEST(FlightAnalysis, DumpsOfPyTorchAreReadToo) {
  const std::filesystem::path folder = test::test_folder();
  write_nccl_dump(folder / "rank_4", {message_of_nccl("nccl:send 0->1", 1, "completed"),
                                      message_of_nccl("nccl:send 0->1", 2, "scheduled")});
  write_nccl_dump(folder / "rank_5", {message_of_nccl("nccl:recv 1<-0", 1, "completed"),
                                      message_of_nccl("nccl:send 1->2", 2, "completed")});
  write_nccl_dump(folder / "rank_6", {message_of_nccl("nccl:recv 2<-1", 1, "completed")});
  write_nccl_dump(folder / "rank_7", {});
  EXPECT_EQ(
      explain_flights(read_flight_dumps(folder)),
      "rank 5 did not join collective 2 on axis mesh_pp (send of [4] Float), for which rank 4 waits; the last that "
      "it began was send of [4] Float, collective 1 on axis mesh_pp, which is completed.");
}

TEST(FlightAnalysis, EntriesThatMakeNoSenseAreRefused) {
  const std::filesystem::path folder = test::test_folder();
  const auto refusal = [&](const PickleValue& entry) -> std::string {
    write_nccl_dump(folder / "rank_4", {entry});
    try {
      read_flight_dumps(folder);
    } catch (const Error& error) {
      return std::string(error.what()).substr((folder / "rank_4: ").string().size());
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(message_of_nccl("nccl:send 0->1", 1, "completed")), "accepted");
  EXPECT_EQ(refusal(message_of_nccl("nccl:send 0->9", 1, "completed")),
            "\"nccl:send 0->9\" names no two of 4 ranks. Take the dumps anew.");
  EXPECT_EQ(refusal(message_of_nccl("nccl:send 0->1", 1, "completed", {"8", "mesh_pp"})),
            "the process group \"8\" is not described. Take the dumps anew.");
  EXPECT_EQ(refusal(message_of_nccl("nccl:send 0->1", 1, "completed", {"7"})),
            "an entry has no process group. Take the dumps anew.");
}

}  // namespace
}  // namespace titanium::train
