#include "titanium/launch/supervisor.h"

#include <gtest/gtest.h>

#include <csignal>

namespace titanium::launch {
namespace {

using std::chrono::seconds;

const Supervisor::Time kStart{};
constexpr ExitStatus kGood{0, 0};
constexpr ExitStatus kBad{3, 0};

TEST(Supervisor, NobodyIsDisturbedWhileAllIsWell) {
  Supervisor supervisor(2);
  supervisor.processes_ended({{0, kGood}}, kStart);
  EXPECT_FALSE(supervisor.finished());
  EXPECT_FALSE(supervisor.next_deadline());
  EXPECT_FALSE(supervisor.due_signal(kStart + seconds(1000)));
  supervisor.processes_ended({{1, kGood}}, kStart);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_FALSE(supervisor.first_failure());
}

TEST(Supervisor, AfterAFailureTheOthersGetTimeThenSigtermThenSigkill) {
  Supervisor supervisor(3);
  supervisor.processes_ended({{1, kBad}}, kStart);
  EXPECT_EQ(supervisor.next_deadline(), kStart + seconds(10));
  EXPECT_FALSE(supervisor.due_signal(kStart + seconds(9)));
  EXPECT_EQ(supervisor.due_signal(kStart + seconds(10)), SIGTERM);
  EXPECT_FALSE(supervisor.due_signal(kStart + seconds(14)));
  EXPECT_EQ(supervisor.next_deadline(), kStart + seconds(15));
  EXPECT_EQ(supervisor.due_signal(kStart + seconds(15)), SIGKILL);
  EXPECT_FALSE(supervisor.due_signal(kStart + seconds(100)));
  EXPECT_FALSE(supervisor.next_deadline());
  EXPECT_FALSE(supervisor.finished());
}

TEST(Supervisor, AFailureElsewhereEndsTheProcessesHere) {
  Supervisor supervisor(1);
  supervisor.peer_failed(kStart);
  EXPECT_EQ(supervisor.due_signal(kStart + seconds(10)), SIGTERM);
  supervisor.processes_ended({{0, {0, SIGTERM}}}, kStart + seconds(10));
  EXPECT_TRUE(supervisor.finished());
  EXPECT_FALSE(supervisor.first_failure()) << "a process that we have ended is no cause";
}

TEST(Supervisor, LaterFailuresDoNotRenewTheTime) {
  Supervisor supervisor(3);
  supervisor.processes_ended({{1, kBad}}, kStart);
  supervisor.processes_ended({{0, {9, 0}}}, kStart + seconds(8));
  EXPECT_EQ(supervisor.next_deadline(), kStart + seconds(10));
  EXPECT_EQ(supervisor.first_failure()->local_rank, 1);
}

TEST(Supervisor, OfProcessesFoundTogetherTheKilledOneIsTheCause) {
  Supervisor supervisor(4);
  supervisor.processes_ended({{0, kGood}, {1, kBad}, {2, {0, SIGKILL}}, {3, {0, SIGSEGV}}}, kStart);
  EXPECT_EQ(supervisor.first_failure()->local_rank, 2);
  EXPECT_EQ(supervisor.first_failure()->exit.exit_code(), 137);
  EXPECT_TRUE(supervisor.finished());
}

TEST(Supervisor, AStopIsForwardedOnceAndLeavesTime) {
  Supervisor supervisor(1);
  EXPECT_FALSE(supervisor.stopping());
  supervisor.stop_requested(SIGINT, kStart);
  EXPECT_TRUE(supervisor.stopping());
  EXPECT_EQ(supervisor.due_signal(kStart), SIGINT);
  EXPECT_FALSE(supervisor.due_signal(kStart + seconds(1000)));
}

// SLURM signals every process of a step, some of them twice.
TEST(Supervisor, ManySigtermsAreOneRequest) {
  Supervisor supervisor(1);
  supervisor.stop_requested(SIGTERM, kStart);
  EXPECT_EQ(supervisor.due_signal(kStart), SIGTERM);
  for (int i = 1; i < 5; ++i) {
    supervisor.stop_requested(SIGTERM, kStart + seconds(i));
    EXPECT_FALSE(supervisor.due_signal(kStart + seconds(i)));
  }
  EXPECT_TRUE(supervisor.stopping());
  EXPECT_FALSE(supervisor.next_deadline());
}

TEST(Supervisor, ASigtermDoesNotMakeAnInterruptTheSecondOne) {
  Supervisor supervisor(1);
  supervisor.stop_requested(SIGTERM, kStart);
  supervisor.due_signal(kStart);
  supervisor.stop_requested(SIGINT, kStart);
  EXPECT_EQ(supervisor.due_signal(kStart), SIGINT);
  EXPECT_FALSE(supervisor.next_deadline());
}

TEST(Supervisor, ASecondInterruptIsFollowedBySigkill) {
  Supervisor supervisor(1);
  supervisor.stop_requested(SIGINT, kStart);
  supervisor.due_signal(kStart);
  supervisor.stop_requested(SIGINT, kStart);
  EXPECT_EQ(supervisor.due_signal(kStart), SIGINT);
  EXPECT_EQ(supervisor.next_deadline(), kStart + seconds(5));
  EXPECT_EQ(supervisor.due_signal(kStart + seconds(5)), SIGKILL);
}

}  // namespace
}  // namespace titanium::launch
