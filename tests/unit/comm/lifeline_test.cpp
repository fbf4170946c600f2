// Who learns what when a rank reports a failure, dies, or says goodbye.
#include "titanium/comm/lifeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "titanium/base/error.h"

namespace titanium::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong(20);         // a failing test ends after this
constexpr milliseconds kQuiet(100);  // in which nothing may happen

// What one rank hears.
class Rank {
 public:
  Rank(int rank, int port, const std::string& secret = "secret")
      : heard_(news_.get_future()),
        lifeline_(rank, {"127.0.0.1"}, port, secret, kLong, [this](std::string news) { news_.set_value(news); }) {}

  std::string wait() { return heard_.wait_for(kLong) == std::future_status::ready ? heard_.get() : "nothing"; }
  bool heard() { return heard_.wait_for(kQuiet) == std::future_status::ready; }
  Lifeline* operator->() { return &lifeline_; }

 private:
  std::promise<std::string> news_;
  std::future<std::string> heard_;
  Lifeline lifeline_;
};

// A rank in a process of its own; `ready` returns when it is connected.
class ProcessRank {
 public:
  ProcessRank(int rank, int port) {
    int ends[2];
    if (::pipe(ends) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      const Lifeline lifeline(rank, {"127.0.0.1"}, port, "secret", kLong, nullptr);
      if (::write(ends[1], "c", 1) != 1) ::_exit(1);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~ProcessRank() {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void signal(int number) const { ::kill(pid_, number); }

 private:
  pid_t pid_ = 0;
};

TEST(Lifeline, AReportedFailureReachesAllOthersAsOneLine) {
  LifelineHub hub(3, "secret");
  Rank zero(0, hub.port()), one(1, hub.port()), two(2, hub.port());
  one->report_failure("no data\nfor step 5");
  EXPECT_EQ(zero.wait(), "rank 1 failed: no data for step 5");
  EXPECT_EQ(two.wait(), "rank 1 failed: no data for step 5");
  EXPECT_FALSE(one.heard());
}

TEST(Lifeline, AFailureOfRank0ReachesAllOthers) {
  LifelineHub hub(3, "secret");
  Rank zero(0, hub.port()), one(1, hub.port()), two(2, hub.port());
  zero->report_failure("out of memory");
  EXPECT_EQ(one.wait(), "rank 0 failed: out of memory");
  EXPECT_EQ(two->wait_for_news(kLong), "rank 0 failed: out of memory");
}

TEST(Lifeline, AKilledProcessIsNamedAndAStoppedOneIsNot) {
  LifelineHub hub(3, "secret");
  // Forked before this process has other connections that the child would keep open.
  const ProcessRank two(2, hub.port());
  Rank zero(0, hub.port()), one(1, hub.port());
  two.signal(SIGSTOP);
  EXPECT_FALSE(one.heard());
  two.signal(SIGKILL);
  EXPECT_EQ(zero.wait(), "rank 2 died");
  EXPECT_EQ(one.wait(), "rank 2 died");
}

TEST(Lifeline, TheFirstFailureIsTheOneThatCounts) {
  LifelineHub hub(3, "secret");
  Rank zero(0, hub.port()), one(1, hub.port());
  auto two = std::make_unique<Rank>(2, hub.port());
  (*two)->report_failure("the cause");
  EXPECT_EQ(one.wait(), "rank 2 failed: the cause");
  one->report_failure("a consequence");
  EXPECT_EQ(zero.wait(), "rank 2 failed: the cause");
  two.reset();
  EXPECT_EQ(zero->wait_for_news(kQuiet), "rank 2 failed: the cause");
}

TEST(Lifeline, GoodbyesAreNoDeaths) {
  auto hub = std::make_unique<LifelineHub>(3, "secret");
  auto zero = std::make_unique<Rank>(0, hub->port()), one = std::make_unique<Rank>(1, hub->port());
  Rank two(2, hub->port());
  one.reset();
  EXPECT_FALSE(two.heard());
  // Rank 0 ends first: its hub waits for rank 2, in vain, and says goodbye.
  zero.reset();
  hub->goodbye_timeout = kQuiet;
  hub.reset();
  EXPECT_FALSE(two.heard());
}

TEST(Lifeline, TheHubWaitsForThoseWhoAreStillThere) {
  auto hub = std::make_unique<LifelineHub>(2, "secret");
  hub->goodbye_timeout = kLong;
  auto one = std::make_unique<Rank>(1, hub->port());
  auto end = std::async(std::launch::async, [&] { hub.reset(); });
  EXPECT_EQ(end.wait_for(kQuiet), std::future_status::timeout);
  EXPECT_FALSE(one->heard());
  one.reset();
  EXPECT_EQ(end.wait_for(kLong), std::future_status::ready);
}

TEST(Lifeline, StrangersAreTurnedAway) {
  LifelineHub hub(2, "secret");
  const auto connect = [&](int rank, const std::string& secret) {
    const Lifeline lifeline(rank, {"127.0.0.1"}, hub.port(), secret, milliseconds(1), nullptr);
  };
  EXPECT_THROW(connect(1, "guess"), Error);
  EXPECT_THROW(connect(2, "secret"), Error);
  EXPECT_NO_THROW(connect(1, "secret"));
}

TEST(Lifeline, TriesAllHosts) {
  LifelineHub hub(1, "secret");
  const Lifeline lifeline(0, {"255.255.255.255", "127.0.0.1"}, hub.port(), "secret", kLong, nullptr);
}

TEST(Lifeline, ServesManyRanks) {
  constexpr int kRanks = 300;
  LifelineHub hub(kRanks, "secret");
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<Rank>(rank, hub.port()));
  (*ranks[kRanks / 2])->report_failure("x");
  ranks.erase(ranks.begin() + kRanks / 2);
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), fmt::format("rank {} failed: x", kRanks / 2));
}

}  // namespace
}  // namespace titanium::comm
