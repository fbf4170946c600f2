// A server of this machine that answers each connection as a test wants it.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "titanium/base/error.h"

namespace titanium::test {

class LoopbackServer {
 public:
  using Send = std::function<bool(std::string_view bytes)>;  // false: nobody listens any more
  // Gets the head of a request, and sends the answer. Connections come one after the other and are closed after it.
  using Answer = std::function<void(const std::string& request, const Send& send)>;

  explicit LoopbackServer(Answer answer) : answer_(std::move(answer)), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* place = reinterpret_cast<sockaddr*>(&address);
    TI_CHECK(
        ::bind(socket_, place, size) == 0 && ::listen(socket_, 8) == 0 && ::getsockname(socket_, place, &size) == 0,
        "a loopback socket cannot be opened.");
    port_ = ::ntohs(address.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  ~LoopbackServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() const {
    for (int client = 0; (client = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(client)) {
      std::string request(16 << 10, '\0');
      request.resize(static_cast<size_t>(std::max<ssize_t>(::recv(client, request.data(), request.size(), 0), 0)));
      answer_(request, [&](std::string_view bytes) {
        return ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
      });
    }
  }

  const Answer answer_;
  const int socket_;
  int port_ = 0;
  std::jthread thread_;
};

}  // namespace titanium::test
