#include "titanium/remote/object_stores.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "titanium/base/printable.h"

namespace titanium::remote {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

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
    transient_or(response, path, fmt::format("{} answers {}. Check the address.", path, response.status));
  }

 private:
  Url url_;
};

// Where a bucket is, and who asks.
struct Bucket {
  explicit Bucket(const std::string& url)
      : name(parse_url(url).host), credentials(aws_credentials_of_environment()), region(aws_region_of_environment()) {
    std::string endpoint = variable("AWS_ENDPOINT_URL_S3");
    if (endpoint.empty()) endpoint = variable("AWS_ENDPOINT_URL");
    // Amazon's own servers have a name for each bucket, others a path.
    server = parse_url(endpoint.empty() ? fmt::format("https://{}.s3.{}.amazonaws.com", name, region) : endpoint);
    base = endpoint.empty() ? "/" : "/" + name + "/";
  }

  HttpRequest request(const std::string& method, const std::string& key, const std::string& query = "") const {
    HttpRequest request{.method = method, .url = server};
    request.url.path = base + percent_encode(key, true);
    request.url.query = query;
    sign_request(request, credentials, region, now());
    return request;
  }

  [[noreturn]] void explain(const HttpResponse& response, const std::string& path) const {
    const auto code_is = [&](std::string_view code) {
      return response.body.find(fmt::format("<Code>{}<", code)) != std::string::npos;
    };
    if (response.status == 404) {
      if (code_is("NoSuchBucket"))
        throw UsageError(fmt::format("{}: there is no bucket {}. Check its name and the region.", path, name));
      throw UsageError(fmt::format("{} does not exist. Check the path.", path));
    }
    if (response.status == 403 || response.status == 401) {
      throw UsageError(fmt::format("{}: access is denied{}. Check {}.", path,
                                   credentials.key.empty() ? " without credentials"
                                   : code_is("SignatureDoesNotMatch") || code_is("InvalidAccessKeyId")
                                       ? ": the key or its secret is wrong"
                                       : "",
                                   credentials.key.empty() ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                                                           : "the credentials and the bucket's permissions"));
    }
    if (response.status == 301)
      throw UsageError(fmt::format("{}: the bucket {} is not in the region {}. Set AWS_REGION.", path, name, region));
    transient_or(response, path, fmt::format("{}: the server answers {}.", path, response.status));
  }

  std::string name;
  AwsCredentials credentials;
  std::string region;
  Url server;
  std::string base;
};

std::string key_of(const std::string& url) {
  const Url parsed = parse_url(url);
  return (parsed.path + (parsed.query.empty() ? "" : "?" + parsed.query)).substr(parsed.path.empty() ? 0 : 1);
}

class S3Object : public RemoteObject {
 public:
  explicit S3Object(const std::string& url) : url_(url), bucket_(url), key_(key_of(url)) {}

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

// The texts between <tag> and </tag>. S3 escapes the few characters that XML wants; keys are asked for percent-encoded.
std::vector<std::string> elements(std::string_view xml, const std::string& tag) {
  std::vector<std::string> found;
  const std::string open = "<" + tag + ">", close = "</" + tag + ">";
  for (size_t at = xml.find(open); at != xml.npos; at = xml.find(open, at)) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == xml.npos) break;
    found.emplace_back(xml.substr(at, end - at));
    at = end;
  }
  return found;
}

std::string first_element(std::string_view xml, const std::string& tag) {
  const auto found = elements(xml, tag);
  return found.empty() ? "" : found.front();
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size()) {
      out += static_cast<char>(std::strtol(std::string(text.substr(at + 1, 2)).c_str(), nullptr, 16));
      at += 2;
    } else {
      out += text[at] == '+' ? ' ' : text[at];
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<RemoteObject> plain_object(const std::string& url) { return std::make_unique<PlainObject>(url); }
std::unique_ptr<RemoteObject> s3_object(const std::string& url) { return std::make_unique<S3Object>(url); }
std::unique_ptr<RemoteObject> hub_object(const std::string& url) { return std::make_unique<HubObject>(url); }

std::vector<RemoteFile> list_s3(const std::string& url, const RetryPolicy& policy) {
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
      files.push_back({"s3://" + bucket.name + "/" + key, name, std::atoll(first_element(entry, "Size").c_str())});
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
