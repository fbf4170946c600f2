#include "titanium/comm/rendezvous/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>

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

using Addresses = std::shared_ptr<const addrinfo>;

struct Resolution {
  int error = EAI_AGAIN;  // of getaddrinfo
  Addresses addresses;
};

Resolution look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return {error, nullptr};
  return {0, Addresses(found, [](const addrinfo* list) { ::freeaddrinfo(const_cast<addrinfo*>(list)); })};
}

// getaddrinfo waits for name servers for as long as it likes; this for at most `timeout`. The thread that still waits
// then is left to itself.
Resolution resolve(const std::string& host, int port, std::chrono::milliseconds timeout) {
  if (Resolution numeric = look_up(host, port, AI_NUMERICHOST); numeric.error == 0) return numeric;
  const auto promise = std::make_shared<std::promise<Resolution>>();
  std::future<Resolution> answer = promise->get_future();
  std::thread([=] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are for threads that live on
    try {
      promise->set_value(look_up(host, port, 0));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  return answer.wait_for(timeout) == std::future_status::ready ? answer.get() : Resolution{};
}

Resolution resolve_own(const std::string& host, int port) {
  constexpr std::chrono::seconds kLongest(30);
  Resolution found = resolve(host, port, kLongest);
  TI_CHECK(found.error == 0, "the host name {} cannot be resolved: {}", host, ::gai_strerror(found.error));
  return found;
}

bool is_loopback(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_addr;
    return (ntohl(ip.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  return address.ai_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr);
}

FileDescriptor open_listener(int family, const sockaddr* address, socklen_t size) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // connections that have just ended do not hold the port
  if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address, size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

// One IPv6 socket serves both, where the machine has IPv6.
FileDescriptor open_everywhere(int port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  FileDescriptor socket = open_listener(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (socket.valid()) return socket;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  return open_listener(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

struct OwnAddress {
  sockaddr_storage bytes{};
  socklen_t size = sizeof bytes;

  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&bytes); }
};

// That from which this machine would send to `target`, with port 0: UDP's connect chooses it and sends nothing.
std::optional<OwnAddress> own_address(const addrinfo& target) {
  const FileDescriptor probe(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  OwnAddress own;
  if (!probe.valid() || ::connect(probe.get(), target.ai_addr, target.ai_addrlen) != 0) return std::nullopt;
  if (::getsockname(probe.get(), own.generic(), &own.size) != 0) return std::nullopt;
  (target.ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own.bytes).sin6_port
                                : reinterpret_cast<sockaddr_in&>(own.bytes).sin_port) = 0;
  return own;
}

FileDescriptor open_towards(const addrinfo& target) {
  std::optional<OwnAddress> own = own_address(target);
  return own ? open_listener(target.ai_family, own->generic(), own->size) : FileDescriptor();
}

Listener describe(FileDescriptor socket, bool everywhere) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* generic = reinterpret_cast<sockaddr*>(&own);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  ::getsockname(socket.get(), generic, &size);
  ::getnameinfo(generic, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return {std::move(socket), std::atoi(port), everywhere ? "" : host};
}

Listener listen_at(const std::string& host, int port, Reach reach, bool here) {
  const Resolution found = resolve_own(host, port);
  const bool is_name = look_up(host, port, AI_NUMERICHOST).error != 0;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = found.addresses.get(); address != nullptr; address = address->ai_next) {
    const bool everywhere = reach == Reach::kOtherMachines && is_name && is_loopback(*address);
    FileDescriptor socket =
        everywhere ? open_everywhere(port) : open_listener(address->ai_family, address->ai_addr, address->ai_addrlen);
    const bool elsewhere = !socket.valid() && errno == EADDRNOTAVAIL;
    if (elsewhere && !here) socket = open_towards(*address);
    if (socket.valid()) return describe(std::move(socket), everywhere);
    if (!elsewhere) error = errno;
  }
  TI_CHECK(error != EADDRNOTAVAIL, "{} is not an address of this machine", host);
  throw Error(fmt::format("port {} of {} cannot be opened: {}", port, host, std::strerror(error)));
}

}  // namespace

Listener listen_at(const std::string& host, int port, Reach reach) {
  return listen_at(host, port, reach, /*here=*/true);
}

Listener listen_towards(const std::string& host, Reach reach) { return listen_at(host, 0, reach, /*here=*/false); }

std::string address_towards(const std::string& host) {
  constexpr int kAnyPort = 9;  // nothing is sent
  constexpr std::chrono::seconds kLongest(30);
  const Resolution found = resolve(host, kAnyPort, kLongest);
  const bool is_name = look_up(host, kAnyPort, AI_NUMERICHOST).error != 0;
  for (const addrinfo* address = found.addresses.get(); address != nullptr; address = address->ai_next) {
    if (is_name && is_loopback(*address)) return "";
    std::optional<OwnAddress> own = own_address(*address);
    char text[NI_MAXHOST] = "";
    if (own && ::getnameinfo(own->generic(), own->size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      return text;
  }
  return "";
}

FileDescriptor accept_connection(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) notice_dead_machines(socket);
  return socket;
}

FileDescriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const Resolution found = resolve(host, port, timeout);
  std::string cause = "this machine has no sockets left";
  if (found.error != 0) cause = fmt::format("the host name cannot be resolved ({})", ::gai_strerror(found.error));
  bool refused = false;
  for (const addrinfo* address = found.addresses.get(); address != nullptr; address = address->ai_next) {
    FileDescriptor socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) continue;
    const int error = try_address(socket, *address, timeout);
    if (error == 0) {
      notice_dead_machines(socket);
      return socket;
    }
    if (!refused) cause = std::strerror(error);
    refused = refused || error == ECONNREFUSED;
  }
  throw ConnectError(fmt::format("cannot connect to {}:{}: {}", host, port, cause), cause, refused);
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

void WakePipe::drain() const {
  char bytes[64];
  while (::read(read_end.get(), bytes, sizeof bytes) > 0) {
  }
}

void LineSocket::send(std::string line) const {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.resize(std::min(line.size(), kLongestLine - 1));
  line += '\n';
  ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool LineSocket::receive() {
  char buffer[4096];
  while (received_.size() < longest_line_) {
    const size_t room = std::min(sizeof buffer, longest_line_ - received_.size());
    const ssize_t count = ::recv(socket_.get(), buffer, room, MSG_DONTWAIT);
    if (count > 0) {
      received_.append(buffer, static_cast<size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return received_.find('\n') != std::string::npos;
}

bool LineSocket::next(std::string& line) {
  const size_t end = received_.find('\n');
  if (end == std::string::npos) return false;
  line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return true;
}

}  // namespace titanium::comm
