// Objects that are written and removed: s3:// and gs://.
#pragma once

#include <cstddef>
#include <deque>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "titanium/remote/stores/bucket.h"
#include "titanium/remote/transport/retry.h"

namespace titanium::remote {

// One object, written from front to back, which appears with publish() and not before. Up to 8 MiB are sent as they
// are; more become a multipart upload, whose parts grow with their number, so that 400 GB fit. Two parts are under way
// while a third is filled. Each request is tried again as `policy` says; an attempt ends when nothing moves for a
// third of the time that is left, 20 s at most, and else takes as long as it needs. Everything throws as open_bytes
// does; about bytes, also later.
class ObjectWriter {
 public:
  explicit ObjectWriter(std::string url, const RetryPolicy& policy = {});
  // Tells the server to forget what was not published.
  ~ObjectWriter();
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void publish();

 private:
  size_t part_bytes() const;
  void send_part();
  void take_tag();
  void begin_upload();
  void complete_upload();
  HttpResponse send(const std::string& method, const std::string& query, const std::string& body) const;
  bool is_there(Clock::time_point until) const;

  const std::string url_;
  const Bucket bucket_;
  const std::string key_;
  const RetryPolicy policy_;
  std::string upload_;  // the server's name of the multipart upload; empty: none was begun
  std::string filling_;
  uint64_t size_ = 0;
  std::deque<std::future<std::string>> under_way_;
  std::vector<std::string> tags_;  // of the parts, in order
};

// Whether files can be written at the address: buckets can.
bool is_writable_address(const std::string& path);

// Removes objects; one that is not there is no mistake. Throws as open_bytes does.
void remove_objects(const std::vector<std::string>& urls, const RetryPolicy& policy = {});

// Ends multipart uploads below an address that were begun and not finished, and returns how many there were.
size_t abort_uploads(const std::string& url, const RetryPolicy& policy = {});

}  // namespace titanium::remote
