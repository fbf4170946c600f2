// Work beside the current stream. On the CPU there is one order of things: nothing has to be waited for there.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <chrono>
#include <optional>

#include "titanium/tensor/tensor.h"

namespace titanium {

// An event: a point in the work of a stream that other streams, or the host, can wait for.
class Fence {
 public:
  // One that is `timed` costs the device a little more.
  explicit Fence(Device device, bool timed = false);
  // What the current stream has queued until now.
  void record();
  // The current stream goes on after that. Without a `record` before, at once.
  void wait();
  // The host waits for it: for results that the host itself will read.
  void synchronize();
  // From the moment when the device got to `earlier` until it got here. Both are timed, recorded and waited for.
  double seconds_since(const Fence& earlier) const;

 private:
  Device device_;
  std::optional<c10::Event> event_;                // none on the CPU
  std::chrono::steady_clock::time_point reached_;  // on the CPU
  bool recorded_ = false;
};

// A stream of our own. While a Scope lives, work of this thread is queued there.
class SideStream {
 public:
  explicit SideStream(Device device);

  class Scope {
   public:
    explicit Scope(const SideStream& side) {
      if (side.stream_) guard_.emplace(*side.stream_);
    }

   private:
    std::optional<c10::StreamGuard> guard_;
  };

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace titanium
