#include "titanium/remote/stores/object_writer.h"

#include <algorithm>

#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/stores/xml.h"

namespace titanium::remote {
namespace {

constexpr size_t kPartBytes = 8 << 20;
constexpr size_t kUnderWay = 2;
constexpr size_t kPartsOfOneSize = 1000;  // a store takes 10,000 parts
constexpr size_t kRemovals = 8;           // at a time

bool is_success(int status) { return status >= 200 && status < 300; }

// A large part may be on its way for longer than an attempt has, as long as it moves.
HttpResponse write_once(HttpRequest request, Clock::time_point until) {
  request.until = until;
  request.unhurried = true;
  return http_once(request);
}

}  // namespace

ObjectWriter::ObjectWriter(std::string url, const RetryPolicy& policy)
    : url_(std::move(url)), bucket_(url_), key_(key_of(url_)), policy_(policy) {
  TI_CHECK(is_writable_address(url_), "{} cannot be written: only s3:// and gs:// can. Name one of them, or a folder.",
           url_);
}

ObjectWriter::~ObjectWriter() {
  for (auto& part : under_way_) part.wait();
  if (upload_.empty()) return;
  try {  // once: where the server is away, whoever cleans up later does it
    http_once(bucket_.request("DELETE", key_, "uploadId=" + percent_encode(upload_, false)));
  } catch (const std::exception& error) {
    log_warning("The upload of {} is not taken back: {}", url_, error.what());
  }
}

size_t ObjectWriter::part_bytes() const {
  return kPartBytes * (1 + (tags_.size() + under_way_.size()) / kPartsOfOneSize);
}

void ObjectWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filling_.size() >= part_bytes()) send_part();
    const size_t count = std::min(bytes.size(), part_bytes() - filling_.size());
    filling_.append(reinterpret_cast<const char*>(bytes.data()), count);
    size_ += count;
    bytes = bytes.subspan(count);
  }
}

void ObjectWriter::publish() {
  if (upload_.empty()) {
    send("PUT", "", filling_);
    return;
  }
  if (!filling_.empty()) send_part();
  while (!under_way_.empty()) take_tag();
  complete_upload();
  upload_.clear();
}

void ObjectWriter::send_part() {
  if (upload_.empty()) begin_upload();
  if (under_way_.size() == kUnderWay) take_tag();
  const std::string query =
      fmt::format("partNumber={}&uploadId={}", tags_.size() + under_way_.size() + 1, percent_encode(upload_, false));
  under_way_.push_back(in_background(
      [this, query, body = std::exchange(filling_, {})] { return send("PUT", query, body).header("etag"); }));
}

void ObjectWriter::take_tag() {
  std::future<std::string> first = std::move(under_way_.front());
  under_way_.pop_front();
  tags_.push_back(first.get());
}

void ObjectWriter::begin_upload() {
  upload_ = first_element(send("POST", "uploads=", "").body, "UploadId");
  TI_CHECK(!upload_.empty(), "{} cannot be written: the server begins no upload of several parts.", url_);
}

// An answer may be lost after the server has done it; then it no longer knows the upload, and the object is there.
void ObjectWriter::complete_upload() {
  std::string body = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < tags_.size(); ++i)
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1, tags_[i]);
  body += "</CompleteMultipartUpload>";
  bool again = false;
  with_retries(policy_, [&](Clock::time_point until) {
    const bool retried = std::exchange(again, true);
    const HttpResponse response =
        write_once(bucket_.request("POST", key_, "uploadId=" + percent_encode(upload_, false), body), until);
    if (response.status == 404 && retried && is_there(until)) return;
    if (!is_success(response.status)) bucket_.explain(response, url_);
    if (response.body.find("CompleteMultipartUploadResult") == std::string::npos)  // an error may come with 200
      throw TransientError(fmt::format("{}: the server has not put the parts together", url_));
  });
}

bool ObjectWriter::is_there(Clock::time_point until) const {
  HttpRequest request = bucket_.request("HEAD", key_);
  request.until = until;
  const HttpResponse response = http_once(request);
  return response.status == 200 && response.header("content-length") == std::to_string(size_);
}

HttpResponse ObjectWriter::send(const std::string& method, const std::string& query, const std::string& body) const {
  return with_retries(policy_, [&](Clock::time_point until) {
    HttpResponse response = write_once(bucket_.request(method, key_, query, body), until);
    if (!is_success(response.status)) bucket_.explain(response, url_);
    return response;
  });
}

bool is_writable_address(const std::string& path) {
  if (!is_url(path)) return false;
  const std::string scheme = parse_url(path).scheme;
  return scheme == "s3" || scheme == "gs";
}

void remove_objects(const std::vector<std::string>& urls, const RetryPolicy& policy) {
  std::deque<std::future<void>> under_way;
  const auto remove = [&policy](const std::string& url) {
    const Bucket bucket(url);
    with_retries(policy, [&](Clock::time_point until) {
      const HttpResponse response = write_once(bucket.request("DELETE", key_of(url)), until);
      if (!is_success(response.status) && response.status != 404) bucket.explain(response, url);
    });
  };
  for (const std::string& url : urls) {
    if (under_way.size() == kRemovals) {
      under_way.front().get();
      under_way.pop_front();
    }
    under_way.push_back(in_background([remove, url] { remove(url); }));
  }
  for (auto& removal : under_way) removal.get();
}

size_t abort_uploads(const std::string& url, const RetryPolicy& policy) {
  const Bucket bucket(url);
  const std::string prefix = key_of(url);
  const std::string xml = with_retries(policy, [&](Clock::time_point until) {
    HttpRequest request =
        bucket.request("GET", "", "encoding-type=url&prefix=" + percent_encode(prefix, false) + "&uploads=");
    request.until = until;
    HttpResponse response = http_once(request);
    if (!is_success(response.status)) bucket.explain(response, url);
    return std::move(response.body);
  });
  size_t count = 0;
  for (const std::string& upload : elements(xml, "Upload")) {
    const std::string key = percent_decode(first_element(upload, "Key"));
    if (!key.starts_with(prefix)) continue;
    http_once(bucket.request("DELETE", key, "uploadId=" + percent_encode(first_element(upload, "UploadId"), false)));
    ++count;
  }
  return count;
}

}  // namespace titanium::remote
