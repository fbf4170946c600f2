#include "titanium/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "titanium/base/error.h"

namespace titanium::launch {

SignalQueue::SignalQueue() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) ::sigaddset(&handled, signal);
  ::pthread_sigmask(SIG_BLOCK, &handled, &original_);
  // While signals have their defaults (DefaultSignals) there are no ranks to tell, which is no reason to end; the
  // queue gets them all the same.
  for (const int signal : {SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would hand that on, and the ends of ranks would be lost
  fd_ = FileDescriptor(::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
  TI_ASSERT(fd_.get() >= 0);
}

SignalQueue::~SignalQueue() { ::pthread_sigmask(SIG_SETMASK, &original_, nullptr); }

std::optional<int> SignalQueue::next() const {
  signalfd_siginfo info{};
  if (::read(fd(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void SignalQueue::ignore_further_stops() {
  for (const int signal : {SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
}

DefaultSignals::DefaultSignals(const SignalQueue& queue) {
  ::pthread_sigmask(SIG_SETMASK, &queue.original_mask(), &blocked_);
}

DefaultSignals::~DefaultSignals() { ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr); }

}  // namespace titanium::launch
