// The time that failures take from somebody who waits for several reads, which may be made by several threads.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <utility>

#include "titanium/remote/transport/http.h"

namespace titanium::remote {

// What was lost since somebody began to wait. Failures at the same time lose it once, and time in which nothing fails
// gives as much back. Thread-safe.
class LostTime {
 public:
  // Somebody waits, since `began`. What was lost for one who began to wait at another time is forgotten.
  void wait_since(Clock::time_point began);
  void nobody_waits();

  // Something failed, and nothing came between these moments. Nothing is lost while nobody waits.
  void add(Clock::time_point from, Clock::time_point to);
  Clock::duration at(Clock::time_point moment) const;

 private:
  mutable std::mutex mutex_;
  bool somebody_waits_ = false;
  Clock::time_point began_{};
  Clock::time_point counted_until_{};
  Clock::duration lost_{};
};

// While one lives, all that its thread reads and writes, and what in_background starts there, shares the time that
// failures may take (retry.h): reads that follow each other, each of which fails for a while, end together with the
// sentence of the last one, before others who wait for this process give up. One inside another belongs to the outer
// one.
class OneWait {
 public:
  OneWait();
  // Takes part in what another thread waits for; null: in nothing.
  explicit OneWait(std::shared_ptr<LostTime> lost);
  ~OneWait();
  OneWait(const OneWait&) = delete;
  OneWait& operator=(const OneWait&) = delete;

  Clock::time_point began() const;  // when the outermost one of this thread did

 private:
  std::shared_ptr<LostTime> outer_;
  Clock::time_point outer_began_;
};

// A thread waits for what threads with `lost` read, while this lives; inside a OneWait as a part of that.
class WaitForThreads {
 public:
  explicit WaitForThreads(std::shared_ptr<LostTime> lost) : lost_(std::move(lost)) { lost_->wait_since(wait_.began()); }
  ~WaitForThreads() { lost_->nobody_waits(); }
  WaitForThreads(const WaitForThreads&) = delete;
  WaitForThreads& operator=(const WaitForThreads&) = delete;

 private:
  const OneWait wait_;
  const std::shared_ptr<LostTime> lost_;
};

// Of the OneWait of this thread; null: there is none.
std::shared_ptr<LostTime> lost_time_here();

// What `function` returns, from a thread of its own that takes part in what this one waits for.
template <typename Function>
auto in_background(Function function) {
  return std::async(std::launch::async, [lost = lost_time_here(), function = std::move(function)]() mutable {
    const OneWait wait(std::move(lost));
    return function();
  });
}

}  // namespace titanium::remote
