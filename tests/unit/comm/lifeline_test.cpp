// Who learns what when a rank reports a failure, dies, or says goodbye.
#include "titanium/comm/rendezvous/lifeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <future>
#include <thread>

#include "titanium/base/error.h"
#include "titanium/comm/rendezvous/secret.h"

namespace titanium::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong(20);         // a failing test ends after this
constexpr milliseconds kQuiet(100);  // in which nothing may happen

Listener loopback() { return listen_at("127.0.0.1", 0, Reach::kThisMachine); }

// The fingerprints of ranks that all have the same secret.
std::vector<std::string> fingerprints(size_t ranks) { return {ranks, fingerprint_of("secret")}; }

// What one rank hears.
class Rank {
 public:
  Rank(int rank, int port, const std::string& secret = "secret", milliseconds timeout = kLong)
      : heard_(news_.get_future()),
        lifeline_(rank, {"127.0.0.1"}, port, secret, {timeout, timeout},
                  [this](std::string news) { news_.set_value(news); }) {}

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
      const Lifeline lifeline(rank, {"127.0.0.1"}, port, "secret", {kLong, kLong}, nullptr);
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
  LifelineHub hub(fingerprints(3), loopback());
  Rank zero(0, hub.port()), one(1, hub.port()), two(2, hub.port());
  one->report_failure("no data\nfor step 5");
  EXPECT_EQ(zero.wait(), "rank 1 failed: no data for step 5");
  EXPECT_EQ(two.wait(), "rank 1 failed: no data for step 5");
  EXPECT_FALSE(one.heard());
}

TEST(Lifeline, AFailureOfRank0ReachesAllOthers) {
  LifelineHub hub(fingerprints(3), loopback());
  Rank zero(0, hub.port()), one(1, hub.port()), two(2, hub.port());
  zero->report_failure("out of memory");
  EXPECT_EQ(one.wait(), "rank 0 failed: out of memory");
  EXPECT_EQ(two->wait_for_news(kLong), "rank 0 failed: out of memory");
}

TEST(Lifeline, AKilledProcessIsNamedAndAStoppedOneIsNot) {
  LifelineHub hub(fingerprints(3), loopback());
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
  LifelineHub hub(fingerprints(3), loopback());
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
  auto hub = std::make_unique<LifelineHub>(fingerprints(3), loopback());
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
  auto hub = std::make_unique<LifelineHub>(fingerprints(2), loopback());
  hub->goodbye_timeout = kLong;
  auto one = std::make_unique<Rank>(1, hub->port());
  auto end = std::async(std::launch::async, [&] { hub.reset(); });
  EXPECT_EQ(end.wait_for(kQuiet), std::future_status::timeout);
  EXPECT_FALSE(one->heard());
  one.reset();
  EXPECT_EQ(end.wait_for(kLong), std::future_status::ready);
}

TEST(Secret, IsRandomAndItsFingerprintIsItsSha1) {
  EXPECT_NE(make_secret(), make_secret());
  EXPECT_EQ(make_secret().size(), 32U);
  EXPECT_EQ(fingerprint_of("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");  // the example of FIPS 180-4
}

TEST(Lifeline, StrangersAreTurnedAway) {
  LifelineHub hub({fingerprint_of("zero"), fingerprint_of("one")}, loopback());
  const auto connect = [&](int rank, const std::string& secret) {
    const Lifeline lifeline(rank, {"127.0.0.1"}, hub.port(), secret, {milliseconds(1), milliseconds(1)}, nullptr);
  };
  EXPECT_THROW(connect(1, "guess"), Error);
  EXPECT_THROW(connect(1, fingerprint_of("one")), Error);
  EXPECT_THROW(connect(1, "zero"), Error);
  EXPECT_THROW(connect(2, "one"), Error);
  EXPECT_THROW(connect(-1, "one"), Error);
  EXPECT_NO_THROW(connect(1, "one"));
}

FileDescriptor stranger(const LifelineHub& hub) { return connect_to("127.0.0.1", hub.port(), kLong); }

// Waits until the hub has closed the connection.
bool is_closed(const FileDescriptor& socket) {
  pollfd event{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&event, 1, static_cast<int>(milliseconds(kLong).count())) == 1 &&
         ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(Lifeline, AStrangersLineIsCutOff) {
  LifelineHub hub(fingerprints(1), loopback());
  const FileDescriptor socket = stranger(hub);
  const std::string much(1 << 16, 'x');
  constexpr size_t kMost = 64 << 20;  // more than the kernel keeps for both ends
  size_t sent = 0;
  while (sent < kMost) {
    pollfd event{socket.get(), POLLOUT, 0};
    ASSERT_EQ(::poll(&event, 1, static_cast<int>(milliseconds(kLong).count())), 1);
    const ssize_t count = ::send(socket.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN) break;
    sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  EXPECT_LT(sent, kMost);
  EXPECT_NO_THROW(Rank(0, hub.port()));
}

TEST(Lifeline, WhoSaysNothingIsSentAway) {
  LifelineHub hub(fingerprints(1), loopback(), /*greeting_time=*/kQuiet);
  EXPECT_TRUE(is_closed(stranger(hub)));
  Rank zero(0, hub.port());
  EXPECT_FALSE(zero.heard()) << "the limit is for strangers only";
}

TEST(Lifeline, HoldsAFewStrangersAndStillTakesItsRanks) {
  constexpr size_t kStrangers = 200, kHeld = 2 + 16;
  LifelineHub hub(fingerprints(2), loopback());
  const size_t before = open_descriptors();
  std::vector<FileDescriptor> strangers;
  for (size_t i = 0; i < kStrangers; ++i) strangers.push_back(stranger(hub));
  const auto held = [&] { return open_descriptors() - before - kStrangers; };
  while (held() < kHeld) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(kQuiet);
  EXPECT_EQ(held(), kHeld);
  strangers.clear();
  Rank zero(0, hub.port()), one(1, hub.port());
  one->report_failure("x");
  EXPECT_EQ(zero.wait(), "rank 1 failed: x");
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Lifeline, WaitsWhenTheProcessHasNoDescriptorsLeft) {
  LifelineHub hub(fingerprints(2), loopback());
  Rank zero(0, hub.port());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<FileDescriptor> filled;  // no gap is left below the last
  do filled.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  while (static_cast<size_t>(filled.back().get()) + 1 < open_descriptors() - 1);
  const rlimit none{static_cast<rlim_t>(filled.back().get()) + 2, limit.rlim_max};  // room for the client's end alone
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const FileDescriptor waiting = stranger(hub);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(500));
  const double used = cpu_seconds() - before;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_LT(used, 0.1) << "the thread spins";
  Rank one(1, hub.port());
  one->report_failure("x");
  EXPECT_EQ(zero.wait(), "rank 1 failed: x");
}

TEST(Lifeline, ThePortIsClosedWhenAllRanksAreThere) {
  LifelineHub hub(fingerprints(2), loopback());
  const Rank zero(0, hub.port());
  EXPECT_NO_THROW(stranger(hub));
  EXPECT_THROW(Rank(0, hub.port(), "secret", milliseconds(1)), Error) << "there is a rank 0 already";
  const Rank one(1, hub.port());
  EXPECT_THROW(stranger(hub), ConnectError);
}

TEST(Lifeline, AHandlerThatThrowsEndsNoThread) {
  LifelineHub hub(fingerprints(2), loopback());
  Lifeline zero(0, {"127.0.0.1"}, hub.port(), "secret", {kLong, kLong},
                [](const std::string&) { throw Error("in the handler"); });
  Rank one(1, hub.port());
  one->report_failure("x");
  EXPECT_EQ(zero.wait_for_news(kLong), "rank 1 failed: x");
}

TEST(Lifeline, ALongReasonIsCut) {
  LifelineHub hub(fingerprints(2), loopback());
  Rank zero(0, hub.port()), one(1, hub.port());
  one->report_failure(std::string(1 << 20, 'x'));
  EXPECT_TRUE(zero.wait().starts_with("rank 1 failed: xxxx"));
}

TEST(Lifeline, TriesAllHosts) {
  LifelineHub hub(fingerprints(1), loopback());
  const Lifeline lifeline(0, {"255.255.255.255", "127.0.0.1"}, hub.port(), "secret", {kLong, kLong}, nullptr);
}

TEST(Lifeline, AHostThatCannotBeReachedIsNotWaitedForAsLongAsABusyOne) {
  try {
    const Lifeline lifeline(3, {"no-such-host.invalid"}, 29500, "secret", {milliseconds(600'000), milliseconds(300)},
                            nullptr);
    FAIL() << "connected";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(
        message.starts_with("rank 3 cannot reach rank 0 within 0.3 s: cannot connect to no-such-host.invalid:29500: "
                            "the host name cannot be resolved ("))
        << message;
    EXPECT_TRUE(
        message.ends_with("Check the network and its firewalls: rank 0 listens at a free port besides MASTER_PORT."));
  }
}

TEST(Lifeline, ServesManyRanks) {
  constexpr int kRanks = 300;
  LifelineHub hub(fingerprints(kRanks), loopback());
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<Rank>(rank, hub.port()));
  (*ranks[kRanks / 2])->report_failure("x");
  ranks.erase(ranks.begin() + kRanks / 2);
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), fmt::format("rank {} failed: x", kRanks / 2));
}

}  // namespace
}  // namespace titanium::comm
