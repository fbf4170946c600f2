#include "titanium/remote/object_stores.h"

#include <algorithm>
#include <cstdlib>

#include "titanium/base/printable.h"
#include "titanium/remote/bucket.h"
#include "titanium/remote/xml.h"

namespace titanium::remote {
namespace {

[[noreturn]] void transient_or(const HttpResponse& response, const std::string& path, const std::string& sentence) {
  if (is_transient(response.status)) throw TransientError(fmt::format("{} answers {}", path, response.status));
  throw UsageError(sentence);
}

class PlainObject : public RemoteObject {
 public:
  explicit PlainObject(const std::string& url) : url_(parse_url(url)) {}

  HttpRequest request(const std::string& method) const override {
    return {.method = method, .url = url_, .headers = {{"accept-encoding", "identity"}}};
  }
  void explain(const HttpResponse& response) const override {
    const std::string path = url_.without_query();
    if (response.status == 404) throw NotFound(fmt::format("{} answers 404. Check the address.", path));
    transient_or(response, path, fmt::format("{} answers {}. Check the address.", path, response.status));
  }

 private:
  Url url_;
};

class BucketObject : public RemoteObject {
 public:
  explicit BucketObject(const std::string& url) : url_(url), bucket_(url), key_(key_of(url)) {}

  HttpRequest request(const std::string& method) const override { return bucket_.request(method, key_); }
  void explain(const HttpResponse& response) const override { bucket_.explain(response, url_); }

 private:
  std::string url_;
  Bucket bucket_;
  std::string key_;
};

class HubObject : public RemoteObject {
 public:
  explicit HubObject(const std::string& url) : access_(hub_access_of_environment()), address_(parse_hub_address(url)) {}

  HttpRequest request(const std::string& method) const override {
    HttpRequest request =
        hub_file_request(access_, address_.repo, percent_encode(address_.repo.revision, false), address_.path);
    request.method = method;
    return request;
  }
  void explain(const HttpResponse& response) const override { explain_hub_failure(response, address_.repo); }

 private:
  HubAccess access_;
  HubAddress address_;
};

}  // namespace

std::unique_ptr<RemoteObject> plain_object(const std::string& url) { return std::make_unique<PlainObject>(url); }
std::unique_ptr<RemoteObject> bucket_object(const std::string& url) { return std::make_unique<BucketObject>(url); }
std::unique_ptr<RemoteObject> hub_object(const std::string& url) { return std::make_unique<HubObject>(url); }

std::vector<RemoteFile> list_bucket(const std::string& url, const RetryPolicy& policy) {
  const Bucket bucket(url);
  const std::string prefix = key_of(url);
  const std::string folder = prefix.empty() || prefix.ends_with('/') ? prefix : prefix + "/";
  std::vector<RemoteFile> files;
  std::string token;
  do {
    const std::string query = (token.empty() ? "" : "continuation-token=" + percent_encode(token, false) + "&") +
                              "encoding-type=url&list-type=2&prefix=" + percent_encode(prefix, false);
    const std::string xml = with_retries(policy, [&] {
      HttpResponse response = http_once(bucket.request("GET", "", query));
      if (response.status != 200) bucket.explain(response, url);
      if (response.body.find("</ListBucketResult>") == std::string::npos) {
        throw TransientError(fmt::format("{}: the list of the bucket was cut short", url));
      }
      return std::move(response.body);
    });
    for (const std::string& entry : elements(xml, "Contents")) {
      const std::string key = percent_decode(first_element(entry, "Key"));
      const bool below = key.starts_with(folder) && key.size() > folder.size() && !key.ends_with('/');
      if (!below && key != prefix) continue;
      const std::string name = below ? key.substr(folder.size()) : key.substr(key.rfind('/') + 1);
      files.push_back({bucket.address(key), name, std::atoll(first_element(entry, "Size").c_str())});
    }
    token =
        first_element(xml, "IsTruncated") == "true" ? percent_decode(first_element(xml, "NextContinuationToken")) : "";
  } while (!token.empty());
  std::ranges::sort(files, {}, &RemoteFile::name);
  return files;
}

std::vector<RemoteFile> list_hub(const std::string& url, const RetryPolicy& policy) {
  const HubAddress address = parse_hub_address(url);
  const HubListing listing = list_hub_files(hub_access_of_environment(), address.repo, policy);
  const std::string kind = address.repo.kind == "model" ? "" : address.repo.kind + "s/";
  std::vector<RemoteFile> files;
  for (const HubFile& file : listing.files) {
    const bool is_it = file.path == address.path;
    const bool below = address.path.empty() || file.path.starts_with(address.path + "/");
    if (!is_it && !below) continue;
    const std::string name = is_it                  ? file.path.substr(file.path.rfind('/') + 1)
                             : address.path.empty() ? file.path
                                                    : file.path.substr(address.path.size() + 1);
    // The commit, not the branch: what is read is what was listed.
    files.push_back(
        {fmt::format("hf://{}{}@{}/{}", kind, address.repo.id, listing.commit, file.path), name, file.size});
  }
  return files;
}

HubAddress parse_hub_address(const std::string& url) {
  const Url parsed = parse_url(url);
  std::string rest = parsed.host + parsed.path;
  HubAddress address;
  for (const std::string kind : {"dataset", "space", "model"}) {
    if (rest.starts_with(kind + "s/")) {
      address.repo.kind = kind;
      rest.erase(0, kind.size() + 2);
    }
  }
  while (rest.ends_with('/')) rest.pop_back();
  const size_t slash = rest.find('/');
  const size_t end = slash == rest.npos ? rest.npos : rest.find('/', slash + 1);
  address.repo.id = rest.substr(0, end);
  if (end != rest.npos) address.path = rest.substr(end + 1);
  if (const size_t at = address.repo.id.find('@'); at != std::string::npos) {
    address.repo.revision = percent_decode(address.repo.id.substr(at + 1));
    address.repo.id.resize(at);
  }
  if (slash == rest.npos || address.repo.id.empty() || address.repo.revision.empty()) {
    throw UsageError(
        fmt::format("{} is not an address of the hub such as hf://meta-llama/Llama-3.1-8B or "
                    "hf://datasets/allenai/c4/en.",
                    printable(url)));
  }
  return address;
}

}  // namespace titanium::remote
