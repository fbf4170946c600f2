#include "titanium/comm/store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "titanium/comm/error.h"

namespace titanium::comm {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// c10d's messages carry a stack; the first line says what happened.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

// A listening socket for c10d, which by itself would open the port on every interface.
int bind_loopback(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, kLoopback, &address.sin_addr);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = fd >= 0 && ::bind(fd, generic, size) == 0 && ::getsockname(fd, generic, &size) == 0;
  TI_CHECK(bound, "no port of {} can be opened: {}.", kLoopback, std::strerror(errno));
  port = ntohs(address.sin_port);
  return fd;
}

using Clock = std::chrono::steady_clock;

// Tries all addresses of the host once; what is wrong, empty when one takes connections.
std::string try_connection(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return ::gai_strerror(error);
  }
  int last_error = ETIMEDOUT;
  for (const addrinfo* info = found; info != nullptr && last_error != 0; info = info->ai_next) {
    const int fd = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ::connect(fd, info->ai_addr, info->ai_addrlen);
    pollfd event{fd, POLLOUT, 0};
    socklen_t size = sizeof(last_error);
    if (::poll(&event, 1, /*timeout ms=*/1000) == 1) ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &last_error, &size);
    ::close(fd);
  }
  ::freeaddrinfo(found);
  return last_error == 0 ? "" : std::strerror(last_error);
}

// c10d would wait too, but fills stderr with stacks when it does so in vain.
void wait_for_host(const std::string& address, int port, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const std::string problem = try_connection(address, port);
    if (problem.empty()) return;
    if (Clock::now() >= deadline) {
      throw CommError(fmt::format("no store answers at {}:{} within {:.0f} s: {}.", address, port,
                                  std::chrono::duration<double>(timeout).count(), problem));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace

struct Store::Connection {
  Connection(const std::string& address, const c10d::TCPStoreOptions& options) : tcp(address, options) {}

  template <typename Call>
  auto guarded(Call call) {
    try {
      return call();
    } catch (const c10::Error& error) {
      throw CommError(
          fmt::format("the store at {}:{} does not answer: {}", tcp.getHost(), tcp.getPort(), first_line(error)));
    }
  }

  c10d::TCPStore tcp;
};

Store::Store(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Store::Store(Store&&) noexcept = default;
Store::~Store() = default;

Store Store::host(const std::string& address, int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  try {
    return Store(std::make_unique<Connection>(address, options));
  } catch (const c10::Error& error) {
    throw UsageError(
        fmt::format("no store can be opened at {}:{}: {} Choose another port, and an address of this machine.", address,
                    port, first_line(error)));
  }
}

Store Store::host_locally() {
  int port = 0;
  c10d::TCPStoreOptions options;
  options.masterListenFd = bind_loopback(port);
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  return Store(std::make_unique<Connection>(kLoopback, options));
}

Store Store::connect(const std::string& address, int port, std::chrono::milliseconds timeout) {
  wait_for_host(address, port, timeout);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  try {
    return Store(std::make_unique<Connection>(address, options));
  } catch (const c10::Error& error) {
    throw CommError(fmt::format("what answers at {}:{} is not a store: {}", address, port, first_line(error)));
  }
}

const std::string& Store::address() const { return connection_->tcp.getHost(); }
int Store::port() const { return connection_->tcp.getPort(); }

void Store::set(const std::string& key, const std::string& value) {
  connection_->guarded([&] { connection_->tcp.set(key, to_bytes(value)); });
}

std::string Store::set_once(const std::string& key, const std::string& value) {
  return connection_->guarded([&] { return to_text(connection_->tcp.compareSet(key, {}, to_bytes(value))); });
}

bool Store::has(const std::string& key) const {
  return connection_->guarded([&] { return connection_->tcp.check({key}); });
}

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) const {
  return connection_->guarded([&] {
    connection_->tcp.wait({key}, timeout);
    return to_text(connection_->tcp.get(key));
  });
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return connection_->guarded([&] { return connection_->tcp.add(key, amount); });
}

void silence_lost_connections() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

}  // namespace titanium::comm
