#include "titanium/remote/stores/azure.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <sstream>

#include "titanium/base/text/base64.h"
#include "titanium/remote/digest.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/stores/role_credentials.h"
#include "titanium/remote/transport/environment.h"

namespace titanium::remote {
namespace {

constexpr const char* kVersion = "2021-08-06";  // of the protocol

// "Name=Value;Name=Value": a value may hold '='.
std::map<std::string, std::string> parts_of(const std::string& connection) {
  std::map<std::string, std::string> parts;
  std::istringstream stream(connection);
  for (std::string part; std::getline(stream, part, ';');) {
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos) parts[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return parts;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string date_of(int64_t time) {
  const std::time_t seconds = time;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[64] = {};
  std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

// The path, and each parameter of the query on a line of its own, decoded and sorted.
std::string canonical_resource(const Url& url, const std::string& account) {
  std::vector<std::string> parameters;
  std::istringstream stream(url.query);
  for (std::string part; std::getline(stream, part, '&');) {
    const size_t equals = part.find('=');
    parameters.push_back(percent_decode(part.substr(0, equals)) + ":" + percent_decode(part.substr(equals + 1)));
  }
  std::ranges::sort(parameters);
  std::string resource = "/" + account + url.path;
  for (const std::string& parameter : parameters) resource += "\n" + parameter;
  return resource;
}

}  // namespace

AzureAccount azure_account_of_environment() {
  const auto parts = parts_of(variable("AZURE_STORAGE_CONNECTION_STRING"));
  const auto value = [&](const char* part, const char* name) {
    const auto found = parts.find(part);
    return found != parts.end() ? found->second : variable(name);
  };
  AzureAccount account{.name = value("AccountName", "AZURE_STORAGE_ACCOUNT"),
                       .key = value("AccountKey", "AZURE_STORAGE_KEY"),
                       .sas = value("SharedAccessSignature", "AZURE_STORAGE_SAS_TOKEN"),
                       .endpoint = value("BlobEndpoint", "AZURE_STORAGE_ENDPOINT")};
  account.as_role = account.key.empty() && account.sas.empty() && variable("AZURE_STORAGE_AUTH_MODE") == "login";
  if (account.sas.starts_with('?')) account.sas.erase(0, 1);
  if (account.endpoint.empty()) account.endpoint = fmt::format("https://{}.blob.core.windows.net", account.name);
  while (account.endpoint.ends_with('/')) account.endpoint.pop_back();
  return account;
}

void sign_request(HttpRequest& request, const AzureAccount& account, int64_t time) {
  const auto key = from_base64(account.key);
  if (!key) throw UsageError("AZURE_STORAGE_KEY is not base64. Copy the key of the storage account again.");
  request.headers["x-ms-date"] = date_of(time);
  const auto header = [&](const char* name) {
    const auto found = request.headers.find(name);
    return (found == request.headers.end() ? "" : found->second) + "\n";
  };
  std::string text = request.method + "\n";
  for (const char* name : {"content-encoding", "content-language", "content-length", "content-md5", "content-type",
                           "date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"})
    text += header(name);
  for (const auto& [name, value] : request.headers) {  // sorted
    if (name.starts_with("x-ms-")) text += fmt::format("{}:{}\n", name, value);
  }
  text += canonical_resource(request.url, account.name);
  request.headers["authorization"] = fmt::format("SharedKey {}:{}", account.name, to_base64(hmac_sha256(*key, text)));
}

AzureContainer::AzureContainer(const std::string& url)
    : name_(parse_url(url).host), account_(azure_account_of_environment()) {
  if (account_.name.empty() && account_.endpoint.starts_with("https://.")) {
    throw UsageError(
        fmt::format("{} needs a storage account. Set AZURE_STORAGE_ACCOUNT, with AZURE_STORAGE_KEY or "
                    "AZURE_STORAGE_SAS_TOKEN, or AZURE_STORAGE_CONNECTION_STRING.",
                    url));
  }
}

HttpRequest AzureContainer::request(const std::string& method, const std::string& blob, const std::string& query,
                                    const std::string& range) const {
  HttpRequest request{.method = method, .url = parse_url(account_.endpoint)};
  request.url.path += "/" + name_ + (blob.empty() ? "" : "/" + percent_encode(blob, true));
  request.url.query = query;
  request.headers["x-ms-version"] = kVersion;
  if (!range.empty()) request.headers["range"] = range;
  if (!account_.key.empty()) {
    sign_request(request, account_, now());
  } else if (!account_.sas.empty()) {
    request.url.query += (query.empty() ? "" : "&") + account_.sas;
  } else if (account_.as_role) {
    request.headers["authorization"] = "Bearer " + azure_role_token();
  }
  return request;
}

void AzureContainer::explain(const HttpResponse& response, const std::string& path) const {
  const bool no_container = response.header("x-ms-error-code") == "ContainerNotFound" ||
                            response.body.find("ContainerNotFound") != std::string::npos;
  if (response.status == 404 && no_container)
    throw NotFound(
        fmt::format("{}: the storage account {} has no container {}. Check both names.", path, account_.name, name_));
  if (response.status == 404) throw NotFound(fmt::format("{} does not exist. Check the path.", path));
  if (response.status == 403 || response.status == 401) {
    const bool anonymous = account_.key.empty() && account_.sas.empty() && !account_.as_role;
    throw UsageError(fmt::format("{}: access is denied{}. Check {}.", path, anonymous ? " without credentials" : "",
                                 anonymous ? "AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"
                                           : "the key or token of the storage account, and its permissions"));
  }
  throw_if_transient(response, path);
  throw UsageError(fmt::format("{}: the server answers {}.", path, response.status));
}

}  // namespace titanium::remote
