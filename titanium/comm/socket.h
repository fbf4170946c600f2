// Plain TCP: file descriptors that close themselves, for IPv4 and IPv6.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace titanium::comm {

// Owns a file descriptor. Not inherited by programs that this process starts.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Listener {
  FileDescriptor socket;
  int port = 0;
};

// On all addresses of this machine, at a free port. Throws Error.
Listener listen_anywhere();

// The next connection, or an invalid descriptor when there is none.
FileDescriptor accept_connection(const FileDescriptor& listener);

// Tries every address of `host` once, each for at most `timeout`. Throws Error that says why none answers.
FileDescriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout);

// Wakes a thread that polls `read_end`.
struct WakePipe {
  WakePipe();
  void wake() const;

  FileDescriptor read_end, write_end;
};

// A connection that carries lines of text. Neither function waits.
class LineSocket {
 public:
  explicit LineSocket(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  // Line breaks inside `line` become spaces. What a peer that does not read leaves no room for is lost.
  void send(std::string line) const;
  // Takes what has arrived; false when the peer has closed the connection or is unreachable.
  bool receive();
  // The next whole line that has arrived.
  bool next(std::string& line);

 private:
  FileDescriptor socket_;
  std::string received_;
};

}  // namespace titanium::comm
