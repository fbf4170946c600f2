#include "titanium/launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"

namespace titanium::launch {
namespace {

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Pipe make_pipe() {
  int ends[2];
  TI_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "no pipe can be opened: {}. Raise the limit of open files (ulimit -n).",
           std::strerror(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

struct Start {
  char** arguments;
  char** environment;
  const sigset_t* signal_mask;
  int out;
  int err;
  pid_t parent;
};

// Between fork and exec of a program with threads: only calls that need no lock.
[[noreturn]] void become(const Start& start) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(1);  // it ended before the line above
  const int empty = ::open("/dev/null", O_RDONLY);
  ::dup2(empty, STDIN_FILENO);
  ::dup2(start.out, STDOUT_FILENO);
  ::dup2(start.err, STDERR_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, 0U);
  // A request that comes before the program can handle it should not end it.
  ::signal(SIGUSR1, SIG_IGN);
  ::signal(SIGUSR2, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, start.signal_mask, nullptr);
  ::execve(start.arguments[0], start.arguments, start.environment);
  const char* reason = ::strerrordesc_np(errno);
  for (const char* part : {"cannot start ", const_cast<const char*>(start.arguments[0]), ": ", reason, "\n"}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                           const sigset_t& signal_mask) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  std::vector<char*> arguments = pointers(command);
  std::vector<char*> variables = pointers(environment);
  const Start start{arguments.data(), variables.data(), &signal_mask, out.write.get(), err.write.get(), ::getpid()};
  pid_ = ::fork();
  TI_CHECK(pid_ >= 0, "no process can be started: {}. Raise the limit of processes (ulimit -u).", std::strerror(errno));
  if (pid_ == 0) become(start);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || ended_) return;
  send(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::send(int signal) const {
  if (ended_) return;
  // Until the child has called setsid there is no group of its number.
  if (::kill(-pid_, signal) != 0) ::kill(pid_, signal);
}

std::optional<ExitStatus> ChildProcess::take_exit() {
  siginfo_t info{};
  // WNOWAIT keeps the number reserved until its group is gone.
  const int found = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (ended_ || found != 0 || info.si_pid == 0) return std::nullopt;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ended_ = true;
  if (info.si_code == CLD_EXITED) return ExitStatus{info.si_status, 0};
  return ExitStatus{0, info.si_status};
}

}  // namespace titanium::launch
