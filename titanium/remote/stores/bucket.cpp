#include "titanium/remote/stores/bucket.h"

#include <chrono>

#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/stores/role_credentials.h"
#include "titanium/remote/transport/environment.h"

namespace titanium::remote {
namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Bucket::Bucket(const std::string& url) : scheme_(parse_url(url).scheme), name_(parse_url(url).host) {
  if (scheme_ == "gs") {
    given_.credentials = {variable("GS_ACCESS_KEY_ID"), variable("GS_SECRET_ACCESS_KEY"), ""};
    if (given_.credentials.key.empty()) given_.token = variable("CLOUDSDK_AUTH_ACCESS_TOKEN");
    region_ = "auto";
    const std::string endpoint = variable("STORAGE_EMULATOR_HOST");
    const bool has_scheme = endpoint.find("://") != std::string::npos;
    server_ = parse_url(endpoint.empty() ? "https://storage.googleapis.com" : (has_scheme ? "" : "http://") + endpoint);
    base_ = "/" + name_ + "/";
    return;
  }
  given_.credentials = aws_credentials_of_environment();
  region_ = aws_region_of_environment();
  const std::string endpoint = aws_endpoint_of_environment();
  // Amazon's own servers have a name for each bucket, others a path.
  server_ = parse_url(endpoint.empty() ? fmt::format("https://{}.s3.{}.amazonaws.com", name_, region_) : endpoint);
  base_ = endpoint.empty() ? "/" : "/" + name_ + "/";
}

HttpRequest Bucket::request(const std::string& method, const std::string& key, const std::string& query,
                            std::string body) const {
  HttpRequest request{.method = method, .url = server_, .body = std::move(body)};
  request.url.path = base_ + percent_encode(key, true);
  request.url.query = query;
  const Access access = access_now();
  if (!access.token.empty()) request.headers["authorization"] = "Bearer " + access.token;
  sign_request(request, access.credentials, region_, now());
  return request;
}

Bucket::Access Bucket::access_now() const {
  if (!given_.credentials.key.empty() || !given_.token.empty()) return given_;
  if (scheme_ == "gs") {
    // Whoever reads along could use the token elsewhere; only a test gives both servers.
    const bool is_safe = server_.scheme == "https" || !variable("GCE_METADATA_HOST").empty();
    return {.credentials = {}, .token = is_safe ? google_role_token() : ""};
  }
  return {.credentials = aws_role_credentials(), .token = ""};
}

void Bucket::explain(const HttpResponse& response, const std::string& path) const {
  const auto code_is = [&](std::string_view code) {
    return response.body.find(fmt::format("<Code>{}<", code)) != std::string::npos;
  };
  if (response.status == 404) {
    if (code_is("NoSuchBucket"))
      throw NotFound(fmt::format("{}: there is no bucket {}. Check its name and the region.", path, name_));
    throw NotFound(fmt::format("{} does not exist. Check the path.", path));
  }
  if (response.status == 403 || response.status == 401) {
    const Access access = access_now();
    const bool anonymous = access.credentials.key.empty() && access.token.empty();
    const bool wrong_key = code_is("SignatureDoesNotMatch") || code_is("InvalidAccessKeyId");
    const char* needed = scheme_ == "gs" ? "GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or CLOUDSDK_AUTH_ACCESS_TOKEN"
                                         : "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    throw UsageError(fmt::format("{}: access is denied{}. Check {}.", path,
                                 anonymous   ? " without credentials"
                                 : wrong_key ? ": the key or its secret is wrong"
                                             : "",
                                 anonymous ? needed : "the credentials and the bucket's permissions"));
  }
  if (response.status == 301)
    throw UsageError(fmt::format("{}: the bucket {} is not in the region {}. Set AWS_REGION.", path, name_, region_));
  throw_if_transient(response, path);
  throw UsageError(fmt::format("{}: the server answers {}.", path, response.status));
}

std::string key_of(const std::string& url) {
  const Url parsed = parse_url(url);
  return (parsed.path + (parsed.query.empty() ? "" : "?" + parsed.query)).substr(parsed.path.empty() ? 0 : 1);
}

}  // namespace titanium::remote
