#include "titanium/remote/stores/role_credentials.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"
#include "titanium/remote/stores/xml.h"
#include "titanium/remote/transport/environment.h"
#include "titanium/remote/transport/lease.h"
#include "titanium/remote/transport/retry.h"

namespace titanium::remote {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadataServer = "http://169.254.169.254";

// "2026-11-18T09:30:00Z", also with a fraction of a second; what is no time is taken for a quarter of an hour.
int64_t time_of(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  return end != nullptr ? ::timegm(&parts) : seconds_since_1970() + 900;
}

// Nobody but these servers may see such a request: proxies of the environment are passed by.
HttpRequest direct(const std::string& method, const std::string& url) {
  return {.method = method, .url = parse_url(url), .direct = true};
}

// The answer of a place that the environment names. The first attempt may be silent for 10 s, a third of the limit.
HttpResponse answer_of(HttpRequest request, const char* what) {
  const RetryPolicy policy{.deadline = std::chrono::seconds(20), .limit = std::chrono::seconds(30)};
  return with_retries(policy, [&](Clock::time_point until) {
    request.until = until;
    HttpResponse response = http_once(request);
    const std::string place = request.url.without_query();
    throw_if_transient(response, place);
    if (response.status != 200)
      throw UsageError(fmt::format("{} are refused by {} (status {}). Check the role and the variables that name it.",
                                   what, place, response.status));
    return response;
  });
}

// The first answer of a metadata service, which may begin some seconds after the pod; none after 3 s of silence.
std::optional<HttpResponse> first_answer(HttpRequest request, Clock::time_point until) {
  constexpr auto kPause = std::chrono::milliseconds(200), kSilence = std::chrono::milliseconds(3'000);
  const auto end = std::min(Clock::now() + kSilence, until);
  while (true) {
    request.until = std::min(Clock::now() + std::chrono::seconds(1), end);
    try {
      return http_once(request);
    } catch (const TransientError&) {
      if (Clock::now() + kPause >= end) return std::nullopt;
    }
    std::this_thread::sleep_for(kPause);
  }
}

// The answer of a metadata service that is not busy; none where nobody answers.
std::optional<HttpResponse> metadata(const HttpRequest& request) {
  return with_retries({.deadline = std::chrono::seconds(20)}, [&](Clock::time_point until) {
    std::optional<HttpResponse> response = first_answer(request, until);
    if (response) throw_if_transient(*response, request.url.without_query());
    return response;
  });
}

Lease<AwsCredentials> credentials_of(const HttpResponse& response) {
  try {
    const Json object = parse_json(response.body);
    return {.value = {object.at("AccessKeyId"), object.at("SecretAccessKey"), object.value("Token", "")},
            .expires = time_of(object.value("Expiration", ""))};
  } catch (const std::exception&) {  // what was wrong with it might show a secret
    throw Error(fmt::format("{} does not answer with credentials.", response.url.without_query()));
  }
}

Lease<std::string> token_of(const HttpResponse& response) {
  try {
    const Json object = parse_json(response.body);
    const Json& seconds = object.at("expires_in");  // Azure has it as a string
    return {.value = object.at("access_token"),
            .expires = seconds_since_1970() +
                       (seconds.is_string() ? std::stoll(seconds.get<std::string>()) : integer_of(seconds))};
  } catch (const std::exception&) {
    throw Error(fmt::format("{} does not answer with a token.", response.url.without_query()));
  }
}

// A pod exchanges the token of its service account for credentials.
Lease<AwsCredentials> web_identity() {
  const std::string given = variable("AWS_ENDPOINT_URL_STS"), session = variable("AWS_ROLE_SESSION_NAME");
  const std::string server =
      given.empty() ? fmt::format("https://sts.{}.amazonaws.com", aws_region_of_environment()) : given;
  HttpRequest request{.method = "POST", .url = parse_url(server)};
  request.url.path = "/";
  request.headers["content-type"] = "application/x-www-form-urlencoded";
  request.body = fmt::format(
      "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
      percent_encode(variable("AWS_ROLE_ARN"), false), percent_encode(session.empty() ? "titanium" : session, false),
      percent_encode(read_file(variable("AWS_WEB_IDENTITY_TOKEN_FILE"), "token"), false));
  const std::string xml = answer_of(request, "Credentials of AWS_ROLE_ARN").body;
  const AwsCredentials credentials{first_element(xml, "AccessKeyId"), first_element(xml, "SecretAccessKey"),
                                   first_element(xml, "SessionToken")};
  TI_CHECK(!credentials.key.empty() && !credentials.secret.empty(), "{} does not answer with credentials.", server);
  return {.value = credentials, .expires = time_of(first_element(xml, "Expiration"))};
}

// A container asks the server that its variables name. Its token goes to this machine or over HTTPS and nowhere else.
Lease<AwsCredentials> container() {
  const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url =
      relative.empty() ? variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") : "http://169.254.170.2" + relative;
  HttpRequest request = direct("GET", url);
  if (!may_get_container_token(request.url))
    throw UsageError(fmt::format("AWS_CONTAINER_CREDENTIALS_{}_URI = {} is neither HTTPS nor a server of this machine.",
                                 relative.empty() ? "FULL" : "RELATIVE", request.url.without_query()));
  const std::string file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  std::string token = file.empty() ? variable("AWS_CONTAINER_AUTHORIZATION_TOKEN") : read_file(file, "token");
  while (token.ends_with('\n')) token.pop_back();
  if (!token.empty()) request.headers["authorization"] = token;
  return credentials_of(answer_of(request, "Credentials of this container"));
}

// A machine asks its metadata service, in a session.
Lease<AwsCredentials> machine() {
  if (variable("AWS_EC2_METADATA_DISABLED") == "true") return {};
  const std::string given = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  std::string server = given.empty() ? kMetadataServer : given;
  while (server.ends_with('/')) server.pop_back();
  HttpRequest session = direct("PUT", server + "/latest/api/token");
  session.headers["x-aws-ec2-metadata-token-ttl-seconds"] = "21600";
  const auto token = metadata(session);
  if (!token || token->status != 200) return {};
  HttpRequest request = direct("GET", server + "/latest/meta-data/iam/security-credentials/");
  request.headers["x-aws-ec2-metadata-token"] = token->body;
  const auto role = metadata(request);
  TI_CHECK(role, "{} has begun a session and does not answer any more. Check the metadata service of this machine.",
           server);
  if (role->status != 200 || role->body.empty()) return {};  // the machine has no role
  request.url.path += percent_encode(role->body.substr(0, role->body.find('\n')), false);
  return credentials_of(answer_of(request, "Credentials of this machine"));
}

Lease<AwsCredentials> ask_amazon() {
  if (!variable("AWS_WEB_IDENTITY_TOKEN_FILE").empty() && !variable("AWS_ROLE_ARN").empty()) return web_identity();
  if (!variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
      !variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty())
    return container();
  return machine();
}

// The file of application default credentials, or "".
std::string google_file() {
  std::string given = variable("GOOGLE_APPLICATION_CREDENTIALS");
  const std::string folder = variable("CLOUDSDK_CONFIG");
  if (!given.empty()) return given;
  const auto file = std::filesystem::path(folder.empty() ? variable("HOME") + "/.config/gcloud" : folder) /
                    "application_default_credentials.json";
  std::error_code none;
  return std::filesystem::exists(file, none) ? file.string() : "";
}

// Of a person, as `gcloud auth application-default login` leaves them: a token that gets others.
HttpRequest request_of_user(const std::string& file) {
  Json user;
  std::string kind;
  try {
    user = parse_json(read_file(file, "credentials of Google"));
    kind = user.at("type");
    if (kind == "authorized_user") {
      HttpRequest request{.method = "POST",
                          .url = parse_url(user.value("token_uri", "https://oauth2.googleapis.com/token"))};
      request.headers["content-type"] = "application/x-www-form-urlencoded";
      request.body = "grant_type=refresh_token";
      for (const char* name : {"client_id", "client_secret", "refresh_token"})
        request.body += fmt::format("&{}={}", name, percent_encode(user.at(name).get<std::string>(), false));
      return request;
    }
  } catch (const Json::exception&) {  // what was wrong with it might show a secret
    kind = "";
  } catch (const JsonError&) {
    kind = "";
  }
  throw UsageError(
      fmt::format("{} holds {}, and only those of \"gcloud auth application-default login\" are used. Put a token into "
                  "CLOUDSDK_AUTH_ACCESS_TOKEN, or an HMAC key into GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY.",
                  file, kind.empty() ? "no credentials" : fmt::format("credentials of the kind {}", printable(kind))));
}

Lease<std::string> ask_google() {
  if (const std::string file = google_file(); !file.empty()) {
    const HttpRequest request = request_of_user(file);
    if (!may_get_container_token(request.url))
      throw UsageError(fmt::format("token_uri of {} is neither HTTPS nor a server of this machine.", file));
    return token_of(answer_of(request, "The credentials of Google's tools"));
  }
  if (variable("NO_GCE_CHECK") == "true") return {};
  const std::string host = variable("GCE_METADATA_HOST");
  HttpRequest request = direct("GET", (host.empty() ? kMetadataServer : "http://" + host) +
                                          "/computeMetadata/v1/instance/service-accounts/default/token");
  request.headers["metadata-flavor"] = "Google";
  const auto response = metadata(request);
  if (!response || response->status != 200 || response->header("metadata-flavor") != "Google") return {};
  return token_of(*response);
}

Lease<std::string> ask_azure() {
  const std::string given = variable("AZURE_POD_IDENTITY_AUTHORITY_HOST"), identity = variable("AZURE_CLIENT_ID");
  std::string server = given.empty() ? kMetadataServer : given;
  while (server.ends_with('/')) server.pop_back();
  HttpRequest request = direct("GET", server + "/metadata/identity/oauth2/token");
  request.url.query = "api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F" +
                      (identity.empty() ? "" : "&client_id=" + percent_encode(identity, false));
  request.headers["metadata"] = "true";
  return token_of(answer_of(request, "Tokens for AZURE_STORAGE_AUTH_MODE = login"));
}

}  // namespace

bool may_get_container_token(const Url& url) {
  std::string host = url.host;
  const size_t colon = host.rfind(':');  // what follows is no port in an IPv6 address, or where somebody signs in
  if (colon != std::string::npos && host.find_first_not_of("0123456789", colon + 1) == std::string::npos)
    host.resize(colon);
  const std::array<std::string, 6> here = {"127.0.0.1",     "localhost",      "[::1]",
                                           "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
  return url.scheme == "https" || std::ranges::find(here, host) != here.end();
}

// Never destroyed: threads may still read when the program ends.
AwsCredentials aws_role_credentials() {
  static auto* leased = new Leased<AwsCredentials>(ask_amazon);
  return leased->get();
}

std::string google_role_token() {
  static auto* leased = new Leased<std::string>(ask_google);
  return leased->get();
}

std::string azure_role_token() {
  static auto* leased = new Leased<std::string>(ask_azure);
  return leased->get();
}

}  // namespace titanium::remote
