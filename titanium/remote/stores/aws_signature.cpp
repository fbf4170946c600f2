#include "titanium/remote/stores/aws_signature.h"

#include <ctime>
#include <fstream>
#include <utility>

#include "titanium/remote/digest.h"
#include "titanium/remote/transport/environment.h"

namespace titanium::remote {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(" \t\r"));
  text.erase(text.find_last_not_of(" \t\r") + 1);
  return text;
}

using Sections = std::map<std::string, std::map<std::string, std::string>>;

// A file of [section] and name = value lines; a missing one is empty.
Sections read_sections(const fs::path& path) {
  Sections sections;
  std::ifstream in(path);
  std::string section;
  for (std::string line; std::getline(in, line);) {
    line = trimmed(line);
    if (line.starts_with('[') && line.ends_with(']')) {
      section = trimmed(line.substr(1, line.size() - 2));
      sections[section];
    } else if (const size_t equals = line.find('='); equals != std::string_view::npos && !line.starts_with('#')) {
      sections[section][trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
    }
  }
  return sections;
}

fs::path file_of(const char* name, const char* otherwise) {
  const std::string given = variable(name);
  return given.empty() ? fs::path(variable("HOME")) / ".aws" / otherwise : fs::path(given);
}

std::string profile() {
  const std::string given = variable("AWS_PROFILE");
  return given.empty() ? "default" : given;
}

fs::path config_file() { return file_of("AWS_CONFIG_FILE", "config"); }

// The sections of the configuration that may hold the profile, best first.
std::vector<std::string> sections_of_config() {
  if (profile() == "default") return {"profile default", "default"};
  return {"profile " + profile()};
}

// The first of these variables that is not empty, else this value of the profile in the configuration, or "".
std::string setting(std::initializer_list<const char*> variables, const char* key) {
  for (const char* name : variables) {
    if (const std::string value = variable(name); !value.empty()) return value;
  }
  Sections sections = read_sections(config_file());
  for (const std::string& name : sections_of_config()) {
    if (const std::string value = sections[name][key]; !value.empty()) return value;
  }
  return "";
}

std::string utc(int64_t time, const char* format) {
  const std::time_t seconds = time;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

}  // namespace

AwsCredentials aws_credentials_of_environment() {
  AwsCredentials found{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), variable("AWS_SESSION_TOKEN")};
  if (!found.key.empty()) return found;
  const fs::path keys = file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials"), config = config_file();
  std::vector<std::pair<fs::path, std::string>> places = {{keys, profile()}};
  for (const std::string& name : sections_of_config()) places.emplace_back(config, name);
  bool is_there = false;
  for (const auto& [file, name] : places) {
    Sections sections = read_sections(file);
    if (!sections.contains(name)) continue;
    is_there = true;
    auto& values = sections[name];
    if (const std::string key = values["aws_access_key_id"]; !key.empty())
      return {key, values["aws_secret_access_key"], values["aws_session_token"]};
  }
  if (variable("AWS_PROFILE").empty()) return {};
  if (!is_there)
    throw UsageError(
        fmt::format("AWS_PROFILE = {} is not a section of {} or {}.", profile(), keys.string(), config.string()));
  throw UsageError(
      fmt::format("AWS_PROFILE = {0} has no aws_access_key_id in {1} or {2}. Take its keys into the environment: eval "
                  "\"$(aws configure export-credentials --profile {0} --format env)\".",
                  profile(), keys.string(), config.string()));
}

std::string aws_region_of_environment() {
  const std::string region = setting({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  return region.empty() ? "us-east-1" : region;
}

std::string aws_endpoint_of_environment() {
  const bool ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true";
  return ignored ? "" : setting({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
}

void sign_request(HttpRequest& request, const AwsCredentials& credentials, const std::string& region, int64_t time) {
  if (credentials.key.empty()) return;
  const std::string date = utc(time, "%Y%m%d"), moment = utc(time, "%Y%m%dT%H%M%SZ");
  const std::string payload = to_hex(sha256(request.body));
  request.headers["host"] = request.url.host;
  request.headers["x-amz-date"] = moment;
  request.headers["x-amz-content-sha256"] = payload;
  if (!credentials.session.empty()) request.headers["x-amz-security-token"] = credentials.session;
  std::string canonical_headers, names;
  for (const auto& [name, value] : request.headers) {  // sorted
    canonical_headers += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + request.url.path + "\n" + request.url.query + "\n" +
                                canonical_headers + "\n" + names + "\n" + payload;
  const std::string scope = date + "/" + region + "/s3/aws4_request";
  const std::string to_sign = "AWS4-HMAC-SHA256\n" + moment + "\n" + scope + "\n" + to_hex(sha256(canonical));
  std::string key = "AWS4" + credentials.secret;
  for (const std::string& part : {date, region, std::string("s3"), std::string("aws4_request")})
    key = hmac_sha256(key, part);
  request.headers["authorization"] = fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                                 credentials.key, scope, names, to_hex(hmac_sha256(key, to_sign)));
}

}  // namespace titanium::remote
