#include "titanium/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "titanium/base/error.h"

namespace titanium::comm {
namespace {

void set_option(const FileDescriptor& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof value);
}

// A machine that vanishes closes nothing: the kernel asks after 10 s of silence and gives up after 25 s.
void notice_dead_machines(const FileDescriptor& socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

// 0 or the error number.
int try_address(const FileDescriptor& socket, const addrinfo& address, std::chrono::milliseconds timeout) {
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{socket.get(), POLLOUT, 0};
  if (::poll(&waiting, 1, static_cast<int>(timeout.count())) == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool bind_anywhere(const FileDescriptor& socket, int family) {
  if (family == AF_INET6) {
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

int port_of(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Listener listen_anywhere() {
  for (const int family : {AF_INET6, AF_INET}) {  // one IPv6 socket serves both, where the machine has IPv6
    FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid() || !bind_anywhere(socket, family) || ::listen(socket.get(), SOMAXCONN) != 0) continue;
    const int port = port_of(socket);
    return {std::move(socket), port};
  }
  throw Error(fmt::format("cannot listen on any port of this machine: {}", std::strerror(errno)));
}

FileDescriptor accept_connection(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) notice_dead_machines(socket);
  return socket;
}

FileDescriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(failed ? nullptr : found, &::freeaddrinfo);
  std::string cause = failed ? ::gai_strerror(failed) : "";
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next) {
    FileDescriptor socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) continue;
    const int error = try_address(socket, *address, timeout);
    if (error == 0) {
      notice_dead_machines(socket);
      return socket;
    }
    cause = std::strerror(error);
  }
  throw Error(fmt::format("cannot connect to {}:{}: {}", host, port, cause));
}

WakePipe::WakePipe() {
  int ends[2];
  TI_CHECK(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "cannot make a pipe: {}", std::strerror(errno));
  read_end = FileDescriptor(ends[0]);
  write_end = FileDescriptor(ends[1]);
}

void WakePipe::wake() const {
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(write_end.get(), &byte, 1);  // full: the thread is awake anyway
}

void LineSocket::send(std::string line) const {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool LineSocket::receive() {
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) {
      received_.append(buffer, static_cast<size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

bool LineSocket::next(std::string& line) {
  const size_t end = received_.find('\n');
  if (end == std::string::npos) return false;
  line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return true;
}

}  // namespace titanium::comm
