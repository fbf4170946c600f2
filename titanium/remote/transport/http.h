// HTTP and HTTPS through libcurl, which is loaded when the first request is made: the program starts and runs without
// it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/base/error.h"
#include "titanium/remote/transport/url.h"

namespace titanium::remote {

// Something that another attempt may mend: a server that is busy, a connection that broke, a body that was cut short.
class TransientError : public Error {
 public:
  explicit TransientError(const std::string& message, std::optional<std::chrono::seconds> wait = std::nullopt)
      : Error(message), wait_(wait) {}

  std::optional<std::chrono::seconds> wait() const { return wait_; }  // that the server has asked for

 private:
  std::optional<std::chrono::seconds> wait_;
};

using Clock = std::chrono::steady_clock;

struct HttpRequest {
  std::string method = "GET";
  Url url;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  // The whole answer has come by then, or none. Otherwise it may take as long as bytes come.
  std::optional<Clock::time_point> until = std::nullopt;
  bool unhurried = false;  // it may take longer than that while bytes are sent or come
  bool direct = false;     // past the proxies that the environment names
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  Url url;  // where it came from, after redirects

  // A header's value, or "".
  std::string header(const std::string& name) const;
};

// Gets the body of an answer with status 200 or 206 in pieces; `status` tells which.
using BodySink = std::function<void(int status, std::string_view piece)>;

// One attempt, no redirect followed. Throws TransientError when no whole answer comes: no connection within 10 s, none
// or hardly any bytes for 20 s (or a third of the time that the request gives), fewer than were announced, or not all
// by that time. Throws Error where libcurl is missing. Bodies go to `sink` where there is one, else into the response.
// Thread-safe; connections are kept for later requests.
HttpResponse http_once(const HttpRequest& request, const BodySink& sink = nullptr);

// The same through up to 5 redirects. A redirect to another server is followed without the headers that hold a token or
// a signature, so that nobody else gets them.
HttpResponse http_through_redirects(HttpRequest request, const BodySink& sink = nullptr);

// Whether another attempt may end better: 408, 429 and 5xx.
bool is_transient(int status);

// Throws TransientError for such an answer from `place`, with the wait that it asks for.
void throw_if_transient(const HttpResponse& response, const std::string& place);

// What the header Retry-After asks for at a time in seconds since 1970: a number of seconds or a date. None where it is
// neither.
std::optional<std::chrono::seconds> retry_after(const std::string& header, int64_t time);

}  // namespace titanium::remote
