#include "titanium/launch/failure_watch.h"

#include <sys/eventfd.h>

#include "titanium/comm/error.h"

namespace titanium::launch {
namespace {

constexpr std::chrono::milliseconds kInterval{500};

bool should_end(const Rendezvous& rendezvous) {
  try {
    return rendezvous.failure().has_value();
  } catch (const comm::CommError&) {
    return true;
  }
}

}  // namespace

FailureWatch::FailureWatch(const Rendezvous& rendezvous)
    : fd_(::eventfd(0, EFD_CLOEXEC)), thread_([this, &rendezvous] { run(rendezvous); }) {}

FailureWatch::~FailureWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void FailureWatch::run(const Rendezvous& rendezvous) {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    lock.unlock();
    const bool found = should_end(rendezvous);
    lock.lock();
    if (found) {
      ::eventfd_write(fd_.get(), 1);
      return;
    }
    wake_.wait_for(lock, kInterval, [this] { return ended_; });
  }
}

}  // namespace titanium::launch
