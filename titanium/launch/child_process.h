// A process that lives no longer than this one, with its output in pipes.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "titanium/base/files/file_descriptor.h"
#include "titanium/launch/failure.h"

namespace titanium::launch {

// In a session of its own: signals of the terminal do not reach it, and what it starts can be ended with it. Must be
// started, and stay owned, by a thread that lives as long as it should: the kernel kills it when that thread ends.
class ChildProcess {
 public:
  // `command[0]` is a path; stdin is empty; blocked signals are as in `signal_mask`. Throws Error when the system has
  // no process left. A program that cannot be started ends with exit code 127 and says why on its stderr.
  ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
               const sigset_t& signal_mask);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  // Kills what is left of it.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // The reading ends, non-blocking.
  FileDescriptor& out() { return out_; }
  FileDescriptor& err() { return err_; }

  // Sends the signal to the process and to those that it has started; does nothing once it has ended.
  void send(int signal) const;
  // How the process ended, or nothing while it runs; kills processes that it has left. Does not wait.
  std::optional<ExitStatus> take_exit();

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  FileDescriptor out_;
  FileDescriptor err_;
};

}  // namespace titanium::launch
