// A thread that asks the store for a failure on any node, so that the launcher's own loop never waits for the network.
// It also tells the others that this launcher lives; node 0's makes a launcher that has fallen silent a failure.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "titanium/launch/child_process.h"
#include "titanium/launch/heartbeats.h"
#include "titanium/launch/rendezvous.h"

namespace titanium::launch {

class FailureWatch {
 public:
  // Watches the attempt that `rendezvous` has joined; the rendezvous must outlive the watch.
  explicit FailureWatch(Rendezvous& rendezvous);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  // Becomes readable, and stays so, when there is a failure or node 0's launcher is gone.
  int fd() const { return fd_.get(); }
  // Whether the failure is that of a launcher that was asked to stop: the whole job is being stopped.
  bool saw_stop() const { return saw_stop_; }

 private:
  void run();
  bool should_end();

  Rendezvous& rendezvous_;
  Heartbeats heartbeats_;
  FileDescriptor fd_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::atomic<bool> saw_stop_ = false;
  std::thread thread_;
};

}  // namespace titanium::launch
