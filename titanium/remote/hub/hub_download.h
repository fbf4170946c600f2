// Downloads from the Hugging Face hub into the layout that its own tools use, so that each finds what the other
// fetched.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "titanium/remote/hub/hub.h"

namespace titanium::remote {

struct HubDownload {
  HubRepo repo;
  HubAccess access;
  std::function<bool(const std::string& path)> wanted = [](const std::string&) { return true; };
  std::optional<std::filesystem::path> local_dir = std::nullopt;  // plain files there instead of the cache
  int threads = 4;
  RetryPolicy policy = {};
};

struct HubResult {
  std::filesystem::path folder;  // the snapshot in the cache, or local_dir
  size_t files = 0;              // that were wanted
  int64_t bytes = 0;             // that were fetched; the rest was there
};

// Note [Layout of the hub's cache]
// <cache>/models--owner--name/ holds blobs/<etag>, snapshots/<commit>/<path> as relative links to them and
// refs/<revision> with the commit. A blob grows as <etag>.incomplete, from which a later call goes on, and is renamed
// when its hash is that of the listing. <cache>/.locks/models--owner--name/<etag>.lock is locked meanwhile, as by
// Hugging Face's tools.
//
// Into `local_dir`, files are written under their names, and .cache/huggingface/download/<path>.metadata beside them
// says which commit and hash each is of. `progress` gets bytes done and in all, of what is fetched. Offline nothing is
// fetched, and the snapshot is what the cache has. Throws UsageError or Error; what is whole by then stays.
HubResult download_from_hub(const HubDownload& download, const std::function<void(int64_t, int64_t)>& progress);

}  // namespace titanium::remote
