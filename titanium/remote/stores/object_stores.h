// How each kind of address is turned into HTTP requests.
#pragma once

#include "titanium/remote/hub/hub.h"
#include "titanium/remote/reading/byte_source.h"

namespace titanium::remote {

// An object that is read by ranges. request() is called for each attempt, because signatures age; `range` is the value
// of that header, or empty.
class RemoteObject {
 public:
  virtual ~RemoteObject() = default;
  virtual HttpRequest request(const std::string& method, const std::string& range = "") const = 0;
  // Throws for an answer without success: TransientError for what may pass.
  [[noreturn]] virtual void explain(const HttpResponse& response) const = 0;
};

std::unique_ptr<RemoteObject> plain_object(const std::string& url);
std::unique_ptr<RemoteObject> bucket_object(const std::string& url);
std::unique_ptr<RemoteObject> azure_object(const std::string& url);
std::unique_ptr<RemoteObject> hub_object(const std::string& url);

std::vector<RemoteFile> list_bucket(const std::string& url, const RetryPolicy& policy);
std::vector<RemoteFile> list_azure(const std::string& url, const RetryPolicy& policy);
std::vector<RemoteFile> list_hub(const std::string& url, const RetryPolicy& policy);

// hf://[datasets/|spaces/]owner/name[@revision][/path]. Throws UsageError.
struct HubAddress {
  HubRepo repo;
  std::string path;  // inside the repository; may be empty
};
HubAddress parse_hub_address(const std::string& url);

}  // namespace titanium::remote
