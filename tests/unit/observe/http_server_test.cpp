#include "titanium/observe/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "titanium/base/error.h"

namespace titanium::observe {
namespace {

// What the server answers to these bytes.
std::string ask(int port, const std::string& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t size; (size = ::recv(socket, buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<size_t>(size));
  }
  ::close(socket);
  return answer;
}

std::string get(int port, const std::string& target) {
  return ask(port, "GET " + target + " HTTP/1.1\r\nHost: test\r\n\r\n");
}

HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/broken") throw Error("the handler failed");
  std::string body = request.path;
  for (const auto& [key, value] : request.query) body += fmt::format(" {}={}", key, value);
  return {.type = "text/echo", .body = body};
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(HttpServer, AnswersWithWhatTheHandlerSays) {
  const HttpServer server("127.0.0.1", 0, echo, "--port");
  const std::string answer = get(server.port(), "/data.json?from=10&to=20&flag");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/echo\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n/data.json flag= from=10 to=20")) << answer;
  EXPECT_NE(answer.find("Content-Security-Policy: default-src 'none';"), std::string::npos);
  EXPECT_EQ(server.url(), fmt::format("http://127.0.0.1:{}", server.port()));
}

TEST(HttpServer, HeadHasNoBody) {
  const HttpServer server("127.0.0.1", 0, echo, "--port");
  const std::string answer = ask(server.port(), "HEAD /path HTTP/1.1\r\n\r\n");
  EXPECT_NE(answer.find("Content-Length: 5\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST(HttpServer, OtherMethodsAndOtherProtocolsAreRefused) {
  const HttpServer server("127.0.0.1", 0, echo, "--port");
  EXPECT_TRUE(ask(server.port(), "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 Method Not Allowed"));
  EXPECT_TRUE(ask(server.port(), "hello\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request"));
}

TEST(HttpServer, AFailingHandlerIsAnAnswerAndTheServerGoesOn) {
  const HttpServer server("127.0.0.1", 0, echo, "--port");
  const std::string answer = get(server.port(), "/broken");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 500")) << answer;
  EXPECT_TRUE(answer.ends_with("the handler failed\n")) << answer;
  EXPECT_TRUE(get(server.port(), "/").starts_with("HTTP/1.1 200"));
}

TEST(HttpServer, ALongHeadIsDroppedAndTheServerGoesOn) {
  const HttpServer server("127.0.0.1", 0, echo, "--port");
  EXPECT_EQ(get(server.port(), "/" + std::string(20'000, 'a')), "");
  EXPECT_TRUE(get(server.port(), "/").starts_with("HTTP/1.1 200"));
}

TEST(HttpServer, ATakenPortIsAnErrorWithARemedy) {
  const HttpServer first("127.0.0.1", 0, echo, "metrics.port");
  const std::string message = message_of([&] { HttpServer("127.0.0.1", first.port(), echo, "metrics.port"); });
  EXPECT_EQ(message, fmt::format("metrics.port: nothing can listen at 127.0.0.1 port {}: Address already in use. "
                                 "Choose another port, or 0 for none.",
                                 first.port()));
}

TEST(HttpServer, ANameIsNoAddress) {
  EXPECT_EQ(message_of([] { HttpServer("localhost", 0, echo, "--port"); }),
            "--port: localhost is no numeric address. Use one of this machine, such as 127.0.0.1 or 0.0.0.0.");
}

}  // namespace
}  // namespace titanium::observe
