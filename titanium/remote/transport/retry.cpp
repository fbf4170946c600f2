#include "titanium/remote/transport/retry.h"

#include <algorithm>
#include <mutex>

namespace titanium::remote {
namespace {

struct Shared {
  std::mutex mutex;
  Patience patience;
};

Shared& shared() {
  static auto* instance = new Shared;  // never destroyed: threads may still read when the program ends
  return *instance;
}

thread_local Clock::time_point end_of_attempt = Clock::time_point::max();

}  // namespace

Patience patience_within(std::chrono::seconds timeout_of_collectives) {
  const std::chrono::milliseconds timeout = timeout_of_collectives;
  return {.deadline = timeout * 6 / 10, .limit = timeout * 9 / 10};
}

void set_patience(const Patience& patience) {
  const std::lock_guard lock(shared().mutex);
  shared().patience = patience;
}

Patience patience() {
  const std::lock_guard lock(shared().mutex);
  return shared().patience;
}

RetryTime::RetryTime(const RetryPolicy& policy)
    : start_(Clock::now()),
      end_of_outer_(end_of_attempt),
      end_(std::min(start_ + policy.limit.value_or(patience().limit), end_of_outer_)),
      last_start_(std::min(start_ + policy.deadline.value_or(patience().deadline), end_)) {
  end_of_attempt = end_;
}

RetryTime::~RetryTime() { end_of_attempt = end_of_outer_; }

}  // namespace titanium::remote
