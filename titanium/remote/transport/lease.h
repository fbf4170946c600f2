// Something that was given for a while, and has to be asked for again before that is over.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "titanium/base/error.h"
#include "titanium/base/log.h"

namespace titanium::remote {

inline int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <typename T>
struct Lease {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  T value{};
  int64_t expires = kNever;  // in seconds since 1970
};

// What was given for a while, such as credentials. It is renewed by whoever comes first when half of its time or all
// but five minutes of it are over. The others take what is valid meanwhile, and wait where nothing is. Only one asks at
// a time, and all that wait get what came of it: a failure is thrown for 5 s before somebody asks again. Thread-safe.
template <typename T>
class Leased {
 public:
  explicit Leased(std::function<Lease<T>()> ask, std::function<int64_t()> clock = seconds_since_1970)
      : ask_(std::move(ask)), clock_(std::move(clock)) {}

  // Throws what `ask` throws, where nothing is valid.
  T get() {
    std::unique_lock lock(mutex_);
    has_asked_.wait(lock, [&] { return !asking_ || is_valid(clock_()); });
    const int64_t time = clock_();
    if (is_valid(time) && (asking_ || time < ask_after_)) return lease_->value;
    if (failure_ && !is_valid(time) && time < ask_after_) std::rethrow_exception(failure_);
    asking_ = true;
    lock.unlock();
    Lease<T> next;
    std::exception_ptr failure;
    try {
      next = ask_();
      TI_CHECK(!lease_ || next.expires != Lease<T>::kNever,
               "nobody answers any more where the credentials came from. Check the metadata service of this machine.");
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    asking_ = false;
    has_asked_.notify_all();
    failure_ = failure;
    failure ? fail(clock_()) : take(std::move(next), clock_());
    return lease_->value;
  }

 private:
  static constexpr int64_t kRenewBefore = 300, kRenewAgain = 10, kAskAgain = 5;  // seconds

  bool is_valid(int64_t time) const { return lease_ && time < lease_->expires; }

  void take(Lease<T> next, int64_t time) {
    const bool forever = next.expires == Lease<T>::kNever;
    ask_after_ = forever ? next.expires : next.expires - std::min(kRenewBefore, (next.expires - time + 1) / 2);
    lease_ = std::move(next);
  }

  // Throws the failure where nothing is valid any more.
  void fail(int64_t time) {
    ask_after_ = is_valid(time) ? std::min(time + kRenewAgain, lease_->expires) : time + kAskAgain;
    try {
      std::rethrow_exception(failure_);
    } catch (const Error& error) {
      if (!is_valid(time)) throw;
      log_warning("Credentials that expire in {} s cannot be renewed yet: {}", lease_->expires - time, error.what());
    }
  }

  const std::function<Lease<T>()> ask_;
  const std::function<int64_t()> clock_;
  std::mutex mutex_;
  std::condition_variable has_asked_;
  bool asking_ = false;
  std::optional<Lease<T>> lease_;  // changed by who asks and nobody else
  std::exception_ptr failure_;     // of the last time; none: it was given
  int64_t ask_after_ = 0;
};

}  // namespace titanium::remote
