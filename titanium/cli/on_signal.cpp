#include "titanium/cli/on_signal.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "titanium/base/error.h"

namespace titanium::cli {
namespace {

constexpr char kWork = 'w', kEnd = 'e';
std::atomic<int> to_thread = -1;

// Only calls that a signal handler may make.
void pass_on(int) { [[maybe_unused]] const auto written = ::write(to_thread, &kWork, 1); }

void handle(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

OnSignal::OnSignal(int signal, std::function<void()> work) : signal_(signal) {
  TI_ASSERT(to_thread < 0, "two objects of this kind");
  if (::pipe2(pipe_, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
  to_thread = pipe_[1];
  thread_ = std::thread([from = pipe_[0], work = std::move(work)] {
    for (char order = kEnd; ::read(from, &order, 1) == 1 && order == kWork;) work();
  });
  handle(signal, pass_on);
}

OnSignal::~OnSignal() {
  handle(signal_, SIG_IGN);
  [[maybe_unused]] const auto written = ::write(pipe_[1], &kEnd, 1);
  thread_.join();
  to_thread = -1;
  for (const int end : pipe_) ::close(end);
}

}  // namespace titanium::cli
