#include "titanium/launch/failure_watch.h"

#include <sys/eventfd.h>

namespace titanium::launch {
namespace {

constexpr std::chrono::milliseconds kInterval{500};

}  // namespace

FailureWatch::FailureWatch(Rendezvous& rendezvous)
    : rendezvous_(rendezvous),
      heartbeats_(rendezvous.nodes(), std::chrono::steady_clock::now()),
      fd_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { run(); }) {}

FailureWatch::~FailureWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool FailureWatch::should_end() {
  try {
    rendezvous_.beat();
    rendezvous_.report_silence(heartbeats_);
    const std::optional<Failure> failure = rendezvous_.failure();
    saw_stop_ = failure && failure->stopped;
    return failure.has_value();
  } catch (const std::exception&) {  // the launcher asks the same again, and says what is wrong
    return true;
  }
}

void FailureWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    lock.unlock();
    const bool found = should_end();
    lock.lock();
    if (found) {
      ::eventfd_write(fd_.get(), 1);
      return;
    }
    wake_.wait_for(lock, kInterval, [this] { return ended_; });
  }
}

}  // namespace titanium::launch
