#include "titanium/remote/hub/hub.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"
#include "titanium/remote/hub/hub_cache.h"
#include "titanium/remote/transport/environment.h"

namespace titanium::remote {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

HttpRequest request_for(const HubAccess& access, const std::string& path) {
  TI_CHECK(!hub_is_offline(), "HF_HUB_OFFLINE is set, so {} is not asked. Unset it, or name files of this machine.",
           access.endpoint);
  HttpRequest request{.url = parse_url(access.endpoint + path)};
  if (!access.token.empty()) request.headers["authorization"] = "Bearer " + access.token;
  return request;
}

// The JSON at an address of the hub, and the answer's headers.
Json fetch_json(HttpRequest request, const HubRepo& repo, const RetryPolicy& policy, std::string* next) {
  return with_retries(policy, [&](Clock::time_point until) {
    request.until = until;
    const HttpResponse response = http_through_redirects(request);
    if (response.status != 200) explain_hub_failure(response, repo);
    if (next != nullptr) {
      // Link: <https://...?cursor=...>; rel="next"
      const std::string link = response.header("link");
      const size_t end = link.find(">; rel=\"next\"");
      *next = end == std::string_view::npos || !link.starts_with('<') ? "" : link.substr(1, end - 1);
    }
    try {
      return parse_json(response.body);
    } catch (const JsonError& error) {
      throw TransientError(fmt::format("the answer of {} {}", request.url.without_query(), error.what()));
    }
  });
}

HubFile parse_file(const Json& entry) {
  HubFile file{.path = entry.at("path").get<std::string>(),
               .size = integer_of(entry.at("size")),
               .etag = entry.at("oid").get<std::string>()};
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    file.large = true;
    file.etag = lfs->at("oid").get<std::string>();
    file.size = integer_of(lfs->at("size"));
  }
  // Names come from somebody else's server and become paths here.
  for (const fs::path& part : fs::path(file.path)) {
    TI_CHECK(part != "..", "the repository holds the file {}, which would leave its folder.", printable(file.path));
  }
  const bool plain = !file.path.empty() && !file.path.starts_with('/') && file.path.find('\\') == std::string::npos;
  const bool hash = file.etag.size() == (file.large ? 64U : 40U) &&
                    file.etag.find_first_not_of("0123456789abcdef") == std::string::npos;
  TI_CHECK(plain && hash && file.size >= 0, "the hub lists the file {} with the hash {}, which is not one.",
           printable(file.path), printable(file.etag));
  return file;
}

}  // namespace

bool hub_is_offline() {
  std::string value = variable("HF_HUB_OFFLINE");
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path hugging_face_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface";
  return fs::path(variable("HOME")) / ".cache/huggingface";
}

HubAccess hub_access_of_environment() {
  HubAccess access{.endpoint = variable("HF_ENDPOINT"), .token = trimmed(variable("HF_TOKEN"))};
  if (access.endpoint.empty()) access.endpoint = "https://huggingface.co";
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  if (access.token.empty()) access.token = trimmed(variable("HUGGING_FACE_HUB_TOKEN"));
  const std::string given = variable("HF_TOKEN_PATH");
  const fs::path file = given.empty() ? hugging_face_home() / "token" : fs::path(given);
  std::error_code ignored;
  if (access.token.empty() && fs::is_regular_file(file, ignored)) access.token = trimmed(read_file(file, "token"));
  return access;
}

HubListing list_hub_files(const HubAccess& access, const HubRepo& repo, const RetryPolicy& policy,
                          const std::string& folder) {
  if (hub_is_offline()) return list_cached_files(access, repo, folder);
  const OneWait all_pages;
  const std::string api = fmt::format("/api/{}s/{}", repo.kind, percent_encode(repo.id, true));
  HubListing listing;
  try {
    const Json info = fetch_json(request_for(access, api + "/revision/" + percent_encode(repo.revision, false)), repo,
                                 policy, nullptr);
    listing.commit = info.at("sha").get<std::string>();
    TI_CHECK(!listing.commit.empty() && listing.commit.find_first_not_of("0123456789abcdef") == std::string::npos,
             "the hub names the commit {}, which is not one.", printable(listing.commit));
    const std::string below = folder.empty() ? "" : "/" + percent_encode(folder, true);
    std::string next = access.endpoint + api + "/tree/" + listing.commit + below + "?recursive=true";
    while (!next.empty()) {
      HttpRequest request = request_for(access, "");
      request.url = parse_url(next);
      if (!request.url.same_server(parse_url(access.endpoint))) request.headers.erase("authorization");
      for (const Json& entry : fetch_json(request, repo, policy, &next)) {
        if (entry.at("type") == "file") listing.files.push_back(parse_file(entry));
      }
    }
  } catch (const Json::exception&) {
    throw Error(fmt::format("{} answers in a form that is not the hub's. Check HF_ENDPOINT.", access.endpoint));
  } catch (const JsonError& error) {
    throw Error(fmt::format("{} {}, which is not the hub's form. Check HF_ENDPOINT.", access.endpoint, error.what()));
  }
  std::ranges::sort(listing.files, {}, &HubFile::path);
  return listing;
}

HttpRequest hub_file_request(const HubAccess& access, const HubRepo& repo, const std::string& commit,
                             const std::string& file) {
  const std::string kind = repo.kind == "model" ? "" : repo.kind + "s/";
  HttpRequest request = request_for(access, fmt::format("/{}{}/resolve/{}/{}", kind, percent_encode(repo.id, true),
                                                        commit, percent_encode(file, true)));
  request.headers["accept-encoding"] = "identity";  // so that sizes and ranges are those of the file
  return request;
}

void explain_hub_failure(const HttpResponse& response, const HubRepo& repo) {
  const std::string code = response.header("x-error-code");
  throw_if_transient(response, response.url.without_query());
  if (code == "GatedRepo" || (code.empty() && response.status == 403)) {
    throw UsageError(
        fmt::format("the {} {} is gated. Accept its conditions on its page at the hub, and set HF_TOKEN to a token "
                    "of your account.",
                    repo.kind, repo.id));
  }
  if (code == "RevisionNotFound") {
    throw UsageError(fmt::format("the {} {} has no revision {}. Name a branch, a tag or a commit.", repo.kind, repo.id,
                                 printable(repo.revision)));
  }
  if (code == "EntryNotFound") {
    throw UsageError(fmt::format("the {} {} has no such file or folder ({}). Check the path.", repo.kind, repo.id,
                                 response.url.without_query()));
  }
  if (response.status == 401 || response.status == 404) {
    throw UsageError(
        fmt::format("the {} {} does not exist, or is private. Check its name, and set HF_TOKEN if it is private.",
                    repo.kind, printable(repo.id)));
  }
  throw Error(fmt::format("{} answers {}.", response.url.without_query(), response.status));
}

}  // namespace titanium::remote
