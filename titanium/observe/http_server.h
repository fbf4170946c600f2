// A small HTTP server for people and scrapers: answers GET requests from memory, one at a time, on a thread of its own.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

namespace titanium::observe {

struct HttpRequest {
  std::string path;                          // "/metrics", without the query
  std::map<std::string, std::string> query;  // of `?from=1&to=2`; not decoded, so for numbers and plain names
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  // Listens at `port` (0: a free one) of `address`, a numeric IPv4 or IPv6 address of this machine. `handler` is called
  // on the server's thread; what it throws becomes an answer with status 500. Requests longer than 8 KiB and clients
  // that are silent for 5 seconds are dropped. Throws Error when it cannot listen; `option` names what the user set
  // ("metrics.port").
  HttpServer(const std::string& address, int port, Handler handler, const std::string& option);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Ends after the request that is being answered.
  ~HttpServer();

  int port() const { return port_; }
  // "http://127.0.0.1:8080"
  std::string url() const;

 private:
  void serve();
  void answer(int connection) const;

  std::string address_;
  int port_ = 0;
  Handler handler_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};  // a pipe that ends the thread
  std::thread thread_;
};

}  // namespace titanium::observe
