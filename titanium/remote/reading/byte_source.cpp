#include "titanium/remote/reading/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <set>

#include "titanium/base/log.h"
#include "titanium/remote/hub/hub_cache.h"
#include "titanium/remote/stores/object_stores.h"

namespace titanium::remote {
namespace {

constexpr int64_t kLargestWithoutRanges = int64_t{1} << 30;

class FileBytes : public ByteSource {
 public:
  explicit FileBytes(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status{};
    const bool opened = file_ >= 0 && ::fstat(file_, &status) == 0;
    TI_CHECK(opened, "{} cannot be opened: {}. Check the path and its permissions.", path_, std::strerror(errno));
    size_ = status.st_size;
  }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes() override { ::close(file_); }

  int64_t size() const override { return size_; }

  void read(int64_t offset, std::span<char> out) const override {
    while (!out.empty()) {
      const ssize_t count = ::pread(file_, out.data(), out.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      TI_CHECK(count > 0, "{} cannot be read at byte {}: {}.", path_, offset,
               count < 0 ? std::strerror(errno) : "it has become shorter");
      out = out.subspan(static_cast<size_t>(count));
      offset += count;
    }
  }

 private:
  std::string path_;
  int file_;
  int64_t size_ = 0;
};

int64_t number_of(const std::string& text) {
  int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Once for each server.
void warn_of_plain_http(const Url& url) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::scoped_lock lock(mutex);
  if (!url.is_unprotected() || !warned.insert(url.host).second) return;
  log_warning(
      "{} is read over plain HTTP: bytes that change on the way are noticed only where the format has checksums. Use "
      "https:// where the server has it.",
      url.host);
}

// Puts the bytes of an answer where they are wanted. A server that knows no ranges sends everything.
class RangeSink {
 public:
  RangeSink(int64_t offset, std::span<char> out) : offset_(static_cast<size_t>(offset)), out_(out) {}

  void take(int status, std::string_view piece) {
    const size_t begin = status == 200 ? offset_ : 0, end = begin + out_.size();
    const size_t first = std::clamp(taken_, begin, end), last = std::clamp(taken_ + piece.size(), begin, end);
    if (first < last) std::memcpy(out_.data() + (first - begin), piece.data() + (first - taken_), last - first);
    taken_ += piece.size();
  }
  size_t taken() const { return taken_; }

 private:
  const size_t offset_;
  const std::span<char> out_;
  size_t taken_ = 0;
};

class RemoteBytes : public ByteSource {
 public:
  RemoteBytes(std::string path, std::unique_ptr<RemoteObject> object, const RetryPolicy& policy)
      : path_(std::move(path)), object_(std::move(object)), policy_(policy) {
    with_retries(policy_, [&](Clock::time_point until) {
      HttpRequest request = object_->request("HEAD");
      request.until = until;
      const HttpResponse response = http_through_redirects(request);
      if (response.status != 200) object_->explain(response);
      warn_of_plain_http(response.url);
      size_ = number_of(response.header("content-length"));
      etag_ = response.header("etag");
      modified_ = response.header("last-modified");
      TI_CHECK(size_ >= 0, "{} has no size that its server would tell.", path_);
    });
  }

  int64_t size() const override { return size_; }
  const std::string& version() const { return etag_.empty() ? modified_ : etag_; }

  void read(int64_t offset, std::span<char> out) const override {
    TI_ASSERT(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= size_, "beyond the end of {}", path_);
    if (out.empty()) return;
    with_retries(policy_, [&](Clock::time_point until) { read_once(offset, out, until); });
  }

 private:
  void read_once(int64_t offset, std::span<char> out, Clock::time_point until) const {
    const int64_t last = offset + static_cast<int64_t>(out.size()) - 1;
    HttpRequest request = object_->request("GET", fmt::format("bytes={}-{}", offset, last));
    request.until = until;
    RangeSink sink(offset, out);
    const HttpResponse response = http_through_redirects(request, [&](int status, std::string_view piece) {
      TI_CHECK(status != 200 || size_ <= kLargestWithoutRanges || std::ssize(out) == size_,
               "{} is at a server that knows no ranges: each part of it would take all {} bytes. Copy it to a disk, or "
               "to a store that knows them.",
               path_, size_);
      sink.take(status, piece);
    });
    if (response.status != 200 && response.status != 206) object_->explain(response);
    const std::string etag = response.header("etag");
    TI_CHECK(etag_.empty() || etag.empty() || etag == etag_,
             "{} has changed while it was read. Start again, or name an object that stays.", path_);
    if (response.status == 206 && !response.header("content-range").starts_with(fmt::format("bytes {}-", offset))) {
      throw TransientError(fmt::format("{} answers with the range {} for bytes from {}", path_,
                                       response.header("content-range"), offset));
    }
    const size_t expected = response.status == 200 ? static_cast<size_t>(size_) : out.size();
    if (sink.taken() != expected) throw_short(sink.taken(), expected);
  }

  [[noreturn]] void throw_short(size_t got, size_t expected) const {
    throw TransientError(fmt::format("{} gave {} of {} bytes", path_, got, expected));
  }

  std::string path_;
  std::unique_ptr<RemoteObject> object_;
  RetryPolicy policy_;
  int64_t size_ = 0;
  std::string etag_, modified_;
};

// Messages do not hold the query of such an address, which may be a signature.
RemoteBytes open_plain(const std::string& path, const RetryPolicy& policy) {
  return {parse_url(path).without_query(), plain_object(path), policy};
}

// What the cache has of a commit is what the hub has.
std::unique_ptr<ByteSource> open_hub(const std::string& path, const RetryPolicy& policy) {
  const HubAddress address = parse_hub_address(path);
  if (const auto cached = cached_file(address.repo, address.path)) return std::make_unique<FileBytes>(cached->string());
  if (!hub_is_offline()) return std::make_unique<RemoteBytes>(path, hub_object(path), policy);
  const std::string refusal = offline_refusal(hub_access_of_environment(), address.repo, address.path);
  if (cached_snapshot(address.repo)) throw NotFound(refusal);
  throw Error(refusal);
}

[[noreturn]] void refuse_scheme(const std::string& path, const std::string& scheme) {
  throw UsageError(
      fmt::format("{}: addresses of {}:// are not supported. Supported are https://, http://, s3://, gs://, az:// and "
                  "hf://, and mounted folders.",
                  path, scheme));
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path, const RetryPolicy& policy) {
  if (!is_url(path)) return std::make_unique<FileBytes>(path);
  const std::string scheme = parse_url(path).scheme;
  if (scheme == "http" || scheme == "https") return std::make_unique<RemoteBytes>(open_plain(path, policy));
  if (scheme == "s3" || scheme == "gs") return std::make_unique<RemoteBytes>(path, bucket_object(path), policy);
  if (scheme == "az") return std::make_unique<RemoteBytes>(path, azure_object(path), policy);
  if (scheme == "hf") return open_hub(path, policy);
  refuse_scheme(path, scheme);
}

bool exists(const std::string& path) {
  if (!is_url(path)) return std::filesystem::exists(path);
  try {
    open_bytes(path);
    return true;
  } catch (const NotFound&) {
    return false;
  }
}

std::vector<RemoteFile> list_files(const std::string& path, const RetryPolicy& policy) {
  const OneWait all_pages;
  const Url url = parse_url(path);
  if (url.scheme == "s3" || url.scheme == "gs") return list_bucket(path, policy);
  if (url.scheme == "az") return list_azure(path, policy);
  if (url.scheme == "hf") return list_hub(path, policy);
  if (url.scheme != "http" && url.scheme != "https") refuse_scheme(path, url.scheme);
  // HTTP has no folders: the address is the file.
  const RemoteBytes file = open_plain(path, policy);
  return {{path, url.path.substr(url.path.rfind('/') + 1), file.size(), file.version()}};
}

}  // namespace titanium::remote
