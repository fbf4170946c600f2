// The signals that the launcher handles: SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD.
#pragma once

#include <signal.h>

#include <optional>

#include "titanium/launch/child_process.h"

namespace titanium::launch {

// While one lives, the signals reach no thread that begins now; they can be read from `fd()`. To be made before the
// first thread.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_.get(); }
  // The next signal that has arrived, without waiting.
  std::optional<int> next() const;
  const sigset_t& original_mask() const { return original_; }

  // From now on SIGTERM and SIGHUP do nothing to this program, not even those that have arrived: the request to stop
  // has been met, and cluster managers send it several times.
  static void ignore_further_stops();

 private:
  sigset_t original_;
  FileDescriptor fd_;
};

// While one lives, signals do to this program what they do by default. For times without processes to look after.
class DefaultSignals {
 public:
  explicit DefaultSignals(const SignalQueue& queue);
  ~DefaultSignals();
  DefaultSignals(const DefaultSignals&) = delete;
  DefaultSignals& operator=(const DefaultSignals&) = delete;

 private:
  sigset_t blocked_;
};

}  // namespace titanium::launch
