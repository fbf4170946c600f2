#include "titanium/remote/transport/http.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>

#include "titanium/remote/transport/environment.h"

namespace titanium::remote {
namespace {

constexpr long kConnectMilliseconds = 10'000, kStallSeconds = 20, kStallBytesPerSecond = 10;
constexpr int kMostRedirects = 5;
constexpr size_t kMostIdleHandles = 64;  // each has its connection and its buffers
constexpr size_t kLargestBody = size_t{1} << 30;
constexpr int64_t kLongestWait = 86'400;  // that a server may ask for, in seconds

// libcurl's functions. RTLD_LOCAL keeps its TLS library apart from those of other plug-ins.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  TI_CHECK(function != nullptr, "libcurl.so.4 has no {}. Install libcurl4 anew.", name);
}

const Curl& curl() {
  static const Curl loaded = [] {
    void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    TI_CHECK(library != nullptr, "addresses need libcurl, which cannot be loaded: {}. Install the package libcurl4.",
             ::dlerror());
    Curl curl{};
    find(library, "curl_global_init", curl.global_init);
    find(library, "curl_easy_init", curl.easy_init);
    find(library, "curl_easy_cleanup", curl.easy_cleanup);
    find(library, "curl_easy_reset", curl.easy_reset);
    find(library, "curl_easy_setopt", curl.easy_setopt);
    find(library, "curl_easy_perform", curl.easy_perform);
    find(library, "curl_easy_getinfo", curl.easy_getinfo);
    find(library, "curl_easy_strerror", curl.easy_strerror);
    find(library, "curl_slist_append", curl.slist_append);
    find(library, "curl_slist_free_all", curl.slist_free_all);
    curl.global_init(CURL_GLOBAL_DEFAULT);
    return curl;
  }();
  return loaded;
}

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text) result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// One transfer: what libcurl's callbacks work on.
struct Transfer {
  HttpResponse response;
  const BodySink& sink;
  std::exception_ptr failure = nullptr;

  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // also of an interim answer, whose headers do not count
      response.headers.clear();
      const size_t space = line.find(' ');
      response.status = space == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(space + 1, 3)).c_str());
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.front()))) value.remove_prefix(1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back()))) value.remove_suffix(1);
    response.headers[lower(line.substr(0, colon))] = value;
  }

  void take_body(std::string_view piece) {
    if (sink && (response.status == 200 || response.status == 206)) return sink(response.status, piece);
    TI_CHECK(response.body.size() + piece.size() <= kLargestBody, "the answer from {} is larger than {} bytes.",
             response.url.without_query(), kLargestBody);
    response.body += piece;
  }
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  static_cast<Transfer*>(user)->take_header({data, size * count});
  return size * count;
}

// An exception must not pass through libcurl: it is kept, and the transfer ended.
size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  try {
    transfer->take_body({data, size * count});
    return size * count;
  } catch (...) {
    transfer->failure = std::current_exception();
    return 0;
  }
}

// A handle keeps the connections that it has made, so that handles are lent and come back rather than being made anew.
class Handle {
 public:
  Handle() {
    const std::lock_guard lock(mutex());
    if (!idle().empty()) {
      easy_ = idle().back();
      idle().pop_back();
    }
    if (easy_ == nullptr) easy_ = curl().easy_init();
    TI_CHECK(easy_ != nullptr, "libcurl cannot be started: not enough memory.");
    curl().easy_reset(easy_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    {
      const std::lock_guard lock(mutex());
      if (idle().size() < kMostIdleHandles) {
        idle().push_back(easy_);
        return;
      }
    }
    curl().easy_cleanup(easy_);
  }
  CURL* easy() const { return easy_; }

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static std::vector<CURL*>& idle() {  // never freed: threads may still read when the program ends
    static auto* instance = new std::vector<CURL*>;
    return *instance;
  }

  CURL* easy_ = nullptr;
};

// At least 1, because 0 would be no limit.
long milliseconds_left(const HttpRequest& request) {
  if (!request.until) return std::numeric_limits<long>::max();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*request.until - Clock::now());
  return std::max(1L, static_cast<long>(left.count()));
}

// Of the time that is left, silence may take a third, so that there is some for another attempt.
void set_limits(CURL* easy, const HttpRequest& request) {
  const auto set = curl().easy_setopt;
  const long left = milliseconds_left(request), third = std::max(left / 3, 1'000L);
  if (request.until && !request.unhurried) set(easy, CURLOPT_TIMEOUT_MS, left);
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, std::min({left, third, kConnectMilliseconds}));
  set(easy, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
  set(easy, CURLOPT_LOW_SPEED_TIME, std::min(third / 1'000, kStallSeconds));
}

void set_options(CURL* easy, const HttpRequest& request, const std::string& url, const curl_slist* headers,
                 Transfer& transfer) {
  const auto set = curl().easy_setopt;
  set(easy, CURLOPT_URL, url.c_str());
  set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  set(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method == "HEAD") set(easy, CURLOPT_NOBODY, 1L);
  if (!request.body.empty() || request.method == "PUT" || request.method == "POST") {
    set(easy, CURLOPT_POSTFIELDS, request.body.data());
    set(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  set(easy, CURLOPT_HTTPHEADER, headers);
  set(easy, CURLOPT_FOLLOWLOCATION, 0L);
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set_limits(easy, request);
  if (request.direct) set(easy, CURLOPT_NOPROXY, "*");
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (const std::string file = variable(name); !file.empty()) set(easy, CURLOPT_CAINFO, file.c_str());  // copied
  }
  set(easy, CURLOPT_USERAGENT, "titanium");
  set(easy, CURLOPT_HEADERFUNCTION, &on_header);
  set(easy, CURLOPT_HEADERDATA, &transfer);
  set(easy, CURLOPT_WRITEFUNCTION, &on_body);
  set(easy, CURLOPT_WRITEDATA, &transfer);
}

}  // namespace

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpResponse http_once(const HttpRequest& request, const BodySink& sink) {
  TI_CHECK(request.url.scheme == "http" || request.url.scheme == "https", "{} is not an address of HTTP.",
           request.url.without_query());
  const Handle handle;
  curl_slist* list = nullptr;
  for (const auto& [name, value] : request.headers) {
    list = curl().slist_append(list, fmt::format("{}: {}", name, value).c_str());
  }
  list = curl().slist_append(list, "Expect:");
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl().slist_free_all);
  Transfer transfer{.response = {.status = 0, .headers = {}, .body = {}, .url = request.url}, .sink = sink};
  const std::string url = request.url.text();
  set_options(handle.easy(), request, url, headers.get(), transfer);
  const CURLcode code = curl().easy_perform(handle.easy());
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  if (code != CURLE_OK) {
    throw TransientError(fmt::format("{}: {}", request.url.without_query(), lower(curl().easy_strerror(code))));
  }
  return std::move(transfer.response);
}

HttpResponse http_through_redirects(HttpRequest request, const BodySink& sink) {
  for (int redirects = 0;; ++redirects) {
    HttpResponse response = http_once(request, sink);
    const bool redirected = response.status == 301 || response.status == 302 || response.status == 303 ||
                            response.status == 307 || response.status == 308;
    const std::string location = response.header("location");
    if (!redirected || location.empty()) return response;
    TI_CHECK(redirects < kMostRedirects, "{} redirects more than {} times.", request.url.without_query(),
             kMostRedirects);
    const Url target = resolve_url(request.url, location);
    TI_CHECK(request.url.scheme == "http" || target.scheme == "https",
             "{} redirects to an address without encryption. Nothing was sent there.", request.url.without_query());
    if (!target.same_server(request.url)) {
      for (const char* name : {"authorization", "x-amz-security-token", "host"}) request.headers.erase(name);
    }
    request.url = target;
  }
}

bool is_transient(int status) { return status == 408 || status == 429 || status >= 500; }

void throw_if_transient(const HttpResponse& response, const std::string& place) {
  if (!is_transient(response.status)) return;
  const int64_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  throw TransientError(fmt::format("{} answers {}", place, response.status),
                       retry_after(response.header("retry-after"), time));
}

std::optional<std::chrono::seconds> retry_after(const std::string& header, int64_t time) {
  int64_t seconds = 0;
  const char* end = header.data() + header.size();
  if (const auto [stop, error] = std::from_chars(header.data(), end, seconds); error == std::errc() && stop == end) {
    return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kLongestWait));
  }
  std::tm parts{};
  const char* stop = ::strptime(header.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (stop != header.c_str() + header.size()) return std::nullopt;
  return std::chrono::seconds(std::clamp<int64_t>(::timegm(&parts) - time, 0, kLongestWait));
}

}  // namespace titanium::remote
