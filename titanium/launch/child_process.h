// A process that lives no longer than this one, with its output in pipes.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "titanium/launch/failure.h"

namespace titanium::launch {

// Closes its file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }  // -1: none
  void reset();

 private:
  int fd_ = -1;
};

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

  // To it and to what it has started. Nothing happens when it has ended.
  void send(int signal) const;
  // Once it has ended: kills what it has left behind, and says how it ended. Does not wait.
  std::optional<ExitStatus> take_exit();

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  FileDescriptor out_;
  FileDescriptor err_;
};

}  // namespace titanium::launch
