#include "titanium/doctor/bucket_check.h"

#include <chrono>

#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/stores/object_writer.h"

namespace titanium::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGB = 1e9;
constexpr remote::RetryPolicy kPolicy{.deadline = std::chrono::seconds(20)};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double write_rate(const std::string& url, int64_t bytes) {
  const std::vector<std::byte> block(1 << 20, std::byte{'x'});
  const auto begin = Clock::now();
  remote::ObjectWriter object(url, kPolicy);
  for (int64_t left = bytes; left > 0; left -= static_cast<int64_t>(block.size())) {
    object.write(std::span(block).first(std::min(block.size(), static_cast<size_t>(left))));
  }
  object.publish();
  return static_cast<double>(bytes) / seconds_since(begin);
}

double read_rate(const std::string& url) {
  const auto begin = Clock::now();
  const auto object = remote::open_bytes(url, kPolicy);
  std::vector<char> bytes(static_cast<size_t>(object->size()));
  object->read(0, bytes);
  return static_cast<double>(bytes.size()) / seconds_since(begin);
}

Finding count_objects(const std::string& folder, int world_size) {
  const size_t found = remote::list_files(folder, kPolicy).size(), expected = static_cast<size_t>(world_size);
  Finding finding{.check = "list of the bucket", .fact = fmt::format("has the objects of all {} rank(s)", world_size)};
  if (found != expected) {
    finding.severity = Severity::kError;
    finding.fact = fmt::format("{} has the objects of {} of {} ranks", folder, found, world_size);
    finding.remedy = "Check that all ranks have the same endpoint, and that the server lists what it has accepted.";
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_bucket(const BucketRequest& request) {
  const std::string folder =
      fmt::format("{}{}{}", request.address, request.address.ends_with('/') ? "" : "/", request.trial);
  const std::string own = fmt::format("{}/rank_{}", folder, request.rank);
  std::vector<Finding> findings;
  bool written = false;
  const auto run_together = [&](const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      findings.push_back(
          {.check = "bucket",
           .severity = Severity::kError,
           .fact = error.what(),
           .remedy = "Check checkpoint.folder, the credentials and the endpoint (docs/object_stores.md)."});
    }
    request.barrier();
  };
  run_together([&] {
    const double write = write_rate(own, request.bytes) / kGB;
    written = true;
    const double read = read_rate(own) / kGB;
    findings.push_back(
        {.check = "bucket",
         .fact = fmt::format("{}: writes {:.2g} GB/s, reads {:.2g} GB/s per rank", request.address, write, read),
         .figures = {{"write_gbs", write}, {"read_gbs", read}}});
  });
  run_together([&] {
    if (written) findings.push_back(count_objects(folder, request.world_size));
  });
  run_together([&] {
    if (written) remote::remove_objects({own}, kPolicy);
  });
  return findings;
}

}  // namespace titanium::doctor
