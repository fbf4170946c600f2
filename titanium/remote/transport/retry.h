// Attempts at something that may fail for a while.
#pragma once

#include <chrono>
#include <random>
#include <string_view>
#include <thread>
#include <type_traits>

#include "titanium/base/log.h"
#include "titanium/remote/transport/http.h"

namespace titanium::remote {

// Pauses double from the first to the longest, each cut by a random factor so that many ranks do not come back at the
// same time; from the third failure on they are warnings in the log. No attempt begins after the deadline, and those
// that take the time that is left end by the limit. Both stay below the time-out of collectives: ranks that wait for
// one that reads get its sentence and not a time-out.
struct RetryPolicy {
  std::chrono::milliseconds first_pause{200};
  std::chrono::milliseconds longest_pause{5'000};
  std::chrono::seconds deadline{60};
  std::chrono::seconds limit{90};
};

// What `attempt` returns, which may take the moment by which it has to end. It throws TransientError for what is worth
// another attempt; after the deadline that is thrown as an Error that says how long was tried.
template <typename Attempt>
auto with_retries(const RetryPolicy& policy, const Attempt& attempt) {
  const auto start = Clock::now();
  auto pause = policy.first_pause;
  for (int tries = 1;; ++tries) {
    try {
      if constexpr (std::is_invocable_v<const Attempt&, Clock::time_point>) {
        return attempt(start + policy.limit);
      } else {
        return attempt();
      }
    } catch (const TransientError& error) {
      thread_local std::minstd_rand random(std::random_device{}());
      const auto jittered = pause / 2 + pause * static_cast<int>(random() % 512) / 1024;
      if (Clock::now() + jittered - start > policy.deadline) {
        const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start);
        throw Error(fmt::format("{}, after {} attempts in {} s. Check the network and the server.", error.what(), tries,
                                waited.count()));
      }
      if (tries > 2) log_warning("{}; trying again", error.what());
      std::this_thread::sleep_for(jittered);
      pause = std::min(pause * 2, policy.longest_pause);
    }
  }
}

}  // namespace titanium::remote
