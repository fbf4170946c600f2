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
    : lost_(lost_time_here()),
      start_(Clock::now()),
      end_of_outer_(end_of_attempt),
      lost_before_(lost_ && !is_inside_attempt() ? lost_->at(start_) : Clock::duration::zero()),
      end_(std::min(start_ + policy.limit.value_or(patience().limit) - lost_before_, end_of_outer_)),
      last_start_(std::min(start_ + policy.deadline.value_or(patience().deadline) - lost_before_, end_)) {
  end_of_attempt = end_;
}

RetryTime::~RetryTime() { end_of_attempt = end_of_outer_; }

std::optional<Clock::duration> RetryTime::pause(Clock::duration usual, const TransientError& failure) const {
  const Clock::duration left = last_start_ - Clock::now();
  if (usual > left) return std::nullopt;
  return failure.wait() ? std::min<Clock::duration>(*failure.wait() + usual, left) : usual;
}

void RetryTime::lose_until(Clock::time_point moment) const {
  if (lost_) lost_->add(start_, moment);
}

std::string RetryTime::text() const {
  const auto whole_seconds = [](Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
  };
  const std::string here = fmt::format("{} s", whole_seconds(Clock::now() - start_));
  return lost_before_ < std::chrono::seconds(1)
             ? here
             : fmt::format("{}, with {} s of failures just before", here, whole_seconds(lost_before_));
}

}  // namespace titanium::remote
