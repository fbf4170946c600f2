#include "titanium/observe/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"

namespace titanium::observe {
namespace {

constexpr size_t kLongestRequest = 8192;
constexpr int kPatienceSeconds = 5;

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

std::optional<SocketAddress> parse_address(const std::string& text, int port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(sockaddr_in);
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(sockaddr_in6);
    return address;
  }
  return std::nullopt;
}

int bound_port(int socket) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);  // at the same place in IPv6
}

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

// The head of a request; empty when the client went away, was too slow or wrote too much.
std::string receive_head(int connection) {
  std::string head;
  std::array<char, 2048> buffer;
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t size = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0 || head.size() + static_cast<size_t>(size) > kLongestRequest) return "";
    head.append(buffer.data(), static_cast<size_t>(size));
  }
  return head;
}

void send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

HttpRequest parse_target(std::string_view target) {
  HttpRequest request;
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  std::istringstream pairs(mark == std::string_view::npos ? "" : std::string(target.substr(mark + 1)));
  for (std::string pair; std::getline(pairs, pair, '&');) {
    const size_t equals = std::min(pair.find('='), pair.size());
    request.query[pair.substr(0, equals)] = equals < pair.size() ? pair.substr(equals + 1) : "";
  }
  return request;
}

// Nothing that the page shows may be loaded from elsewhere, whatever is written into it.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'";

}  // namespace

HttpServer::HttpServer(const std::string& address, int port, Handler handler, const std::string& option)
    : address_(address), handler_(std::move(handler)) {
  const auto place = parse_address(address, port);
  TI_CHECK(place, "{}: {} is no numeric address. Use one of this machine, such as 127.0.0.1 or 0.0.0.0.", option,
           address);
  listener_ = ::socket(place->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listens = listener_ >= 0 &&
                       ::bind(listener_, reinterpret_cast<const sockaddr*>(&place->storage), place->size) == 0 &&
                       ::listen(listener_, 16) == 0 && ::pipe2(wake_, O_CLOEXEC) == 0;
  if (!listens) {
    const int error = errno;
    if (listener_ >= 0) ::close(listener_);
    throw Error(fmt::format("{}: nothing can listen at {} port {}: {}. Choose another port, or 0 for {}.", option,
                            address, port, std::strerror(error), option == "metrics.port" ? "none" : "a free one"));
  }
  port_ = bound_port(listener_);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  [[maybe_unused]] const auto written = ::write(wake_[1], "x", 1);
  thread_.join();
  for (const int fd : {listener_, wake_[0], wake_[1]}) ::close(fd);
}

std::string HttpServer::url() const {
  const bool v6 = address_.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", v6 ? "[" + address_ + "]" : address_, port_);
}

void HttpServer::serve() {
  pollfd events[2] = {{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
  while (::poll(events, 2, -1) >= 0 || errno == EINTR) {
    if ((events[1].revents & POLLIN) != 0) return;
    if ((events[0].revents & POLLIN) == 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const timeval patience = {.tv_sec = kPatienceSeconds, .tv_usec = 0};
    ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    answer(connection);
    ::close(connection);
  }
}

void HttpServer::answer(int connection) const {
  const std::string head = receive_head(connection);
  if (head.empty()) return;
  std::istringstream line(head.substr(0, head.find("\r\n")));
  std::string method, target, version;
  line >> method >> target >> version;
  HttpResponse response;
  if (!version.starts_with("HTTP/1.")) {
    response = {.status = 400, .body = "This is an HTTP server.\n"};
  } else if (method != "GET" && method != "HEAD") {
    response = {.status = 405, .body = "Only GET is answered.\n"};
  } else {
    try {
      response = handler_(parse_target(target));
    } catch (const std::exception& error) {
      response = {.status = 500, .body = std::string(error.what()) + "\n"};
    }
  }
  send_all(connection,
           fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: "
                       "no-store\r\nContent-Security-Policy: {}\r\nX-Content-Type-Options: "
                       "nosniff\r\nConnection: close\r\n\r\n",
                       response.status, reason(response.status), response.type, response.body.size(), kPolicy));
  if (method != "HEAD") send_all(connection, response.body);
}

}  // namespace titanium::observe
