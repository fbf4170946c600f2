// The Hugging Face hub's protocol: what a repository holds at a revision.
#pragma once

#include <string>
#include <vector>

#include "titanium/remote/transport/http.h"
#include "titanium/remote/transport/retry.h"

namespace titanium::remote {

// Where the hub is and who asks.
struct HubAccess {
  std::string endpoint;  // without a slash at its end
  std::string token;     // may be empty
};

// As Hugging Face's tools have it: HF_ENDPOINT, HF_TOKEN (also HUGGING_FACE_HUB_TOKEN), else the file that `hf auth
// login` writes, in HF_TOKEN_PATH or HF_HOME.
HubAccess hub_access_of_environment();

// Whether HF_HUB_OFFLINE says that the hub is not to be asked, with a value that Hugging Face's tools take for yes.
bool hub_is_offline();

// HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::filesystem::path hugging_face_home();

struct HubRepo {
  std::string kind = "model";  // or "dataset", "space"
  std::string id;              // owner/name
  std::string revision = "main";
};

struct HubFile {
  std::string path;  // inside the repository
  int64_t size = 0;
  std::string etag;  // of large files the SHA-256, of others git's SHA-1
  bool large = false;
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;  // sorted by path
};

// All files, or those below `folder`, which must be one. Throws UsageError that says what to do when the repository or
// the revision is not there, or is gated; Error when the server cannot be reached. Offline it is what the cache has
// (hub_cache.h), and Error where that has nothing.
HubListing list_hub_files(const HubAccess& access, const HubRepo& repo, const RetryPolicy& policy = {},
                          const std::string& folder = "");

// A request for `file` at `commit`. Throws Error offline.
HttpRequest hub_file_request(const HubAccess& access, const HubRepo& repo, const std::string& commit,
                             const std::string& file);

// Throws what `response`, whose status is not one of success, means for the user. TransientError for what may pass.
[[noreturn]] void explain_hub_failure(const HttpResponse& response, const HubRepo& repo);

}  // namespace titanium::remote
