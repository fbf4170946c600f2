// Work that a signal asks for and that no signal handler may do.
#pragma once

#include <functional>
#include <thread>

namespace titanium::cli {

// While one lives, `work` is called on a thread of its own each time the signal arrives, also while all other threads
// wait for something; afterwards the signal is ignored. One at a time in a process.
class OnSignal {
 public:
  OnSignal(int signal, std::function<void()> work);
  ~OnSignal();
  OnSignal(const OnSignal&) = delete;
  OnSignal& operator=(const OnSignal&) = delete;

 private:
  int signal_;
  int pipe_[2];
  std::thread thread_;
};

}  // namespace titanium::cli
