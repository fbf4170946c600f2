// Attempts at something that may fail for a while.
#pragma once

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include "titanium/base/log.h"
#include "titanium/remote/transport/http.h"
#include "titanium/remote/transport/lost_time.h"

namespace titanium::remote {

// How long a read or a write may be tried.
struct Patience {
  std::chrono::milliseconds deadline{60'000};  // no attempt begins after it
  std::chrono::milliseconds limit{90'000};     // attempts that take the time that is left end by it
};

// Ranks that wait for one that reads shall get its sentence and not a time-out of their collectives, so that all
// attempts end in nine tenths of that, and the last one begins after six tenths.
Patience patience_within(std::chrono::seconds timeout_of_collectives);

// What holds in this process from now on, also for what is open already; Patience{} until it is called. Thread-safe.
void set_patience(const Patience& patience);
Patience patience();

// Pauses double from the first to the longest, each cut by a random factor so that many ranks do not come back at the
// same time; from the third failure on they are warnings in the log. A server that asks for a longer pause gets it, and
// where that is more than the time that is left, one more attempt at its end.
struct RetryPolicy {
  std::chrono::milliseconds first_pause{200};
  std::chrono::milliseconds longest_pause{5'000};
  std::optional<std::chrono::milliseconds> deadline = std::nullopt;  // instead of the process's
  std::optional<std::chrono::milliseconds> limit = std::nullopt;     // likewise
};

// The time that one call of with_retries has: what failures have not taken yet from the OneWait of its thread. A call
// inside an attempt of another one ends with that, and has its own time till then.
class RetryTime {
 public:
  explicit RetryTime(const RetryPolicy& policy);
  ~RetryTime();
  RetryTime(const RetryTime&) = delete;
  RetryTime& operator=(const RetryTime&) = delete;

  Clock::time_point end() const { return end_; }
  // How long to wait after a failure; none: there is no time left for another attempt.
  std::optional<Clock::duration> pause(Clock::duration usual, const TransientError& failure) const;
  void lose_until(Clock::time_point moment) const;
  std::string text() const;  // what was tried so far: "7 s, with 50 s of failures just before"

 private:
  bool is_inside_attempt() const { return end_of_outer_ != Clock::time_point::max(); }

  const std::shared_ptr<LostTime> lost_;
  const Clock::time_point start_, end_of_outer_;
  const Clock::duration lost_before_;
  const Clock::time_point end_, last_start_;
};

// What `attempt` returns, which may take the moment by which it has to end. It throws TransientError for what is worth
// another attempt; after the deadline that is thrown as an Error that says how long was tried.
template <typename Attempt>
auto with_retries(const RetryPolicy& policy, const Attempt& attempt) {
  const RetryTime time(policy);
  auto pause = policy.first_pause;
  for (int tries = 1;; ++tries) {
    try {
      if constexpr (std::is_invocable_v<const Attempt&, Clock::time_point>) {
        return attempt(time.end());
      } else {
        return attempt();
      }
    } catch (const TransientError& error) {
      thread_local std::minstd_rand random(std::random_device{}());
      const auto jittered = pause / 2 + pause * static_cast<int>(random() % 512) / 1024;
      const std::optional<Clock::duration> wait = time.pause(jittered, error);
      if (!wait) {
        throw Error(fmt::format("{}, after {} attempts in {}. Check the network and the server.", error.what(), tries,
                                time.text()));
      }
      if (tries > 2) log_warning("{}; trying again", error.what());
      time.lose_until(Clock::now() + *wait);
      std::this_thread::sleep_for(*wait);
      pause = std::min(pause * 2, policy.longest_pause);
    }
  }
}

}  // namespace titanium::remote
