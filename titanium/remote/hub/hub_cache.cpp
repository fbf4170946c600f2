#include "titanium/remote/hub/hub_cache.h"

#include <algorithm>

#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/base/text/printable.h"
#include "titanium/remote/transport/environment.h"

namespace titanium::remote {
namespace {

namespace fs = std::filesystem;

bool is_commit(const std::string& revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool stays_inside(const fs::path& path) {
  return path.is_relative() && std::ranges::none_of(path, [](const fs::path& part) { return part == ".."; });
}

}  // namespace

fs::path hub_cache_folder() {
  const std::string given = variable("HF_HUB_CACHE");
  return given.empty() ? hugging_face_home() / "hub" : fs::path(given);
}

fs::path hub_cache_folder(const HubRepo& repo) {
  std::string name = repo.kind + "s--" + repo.id;
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/')) name.replace(slash, 1, "--");
  return hub_cache_folder() / name;
}

std::optional<fs::path> cached_snapshot(const HubRepo& repo) {
  std::error_code ignored;
  std::string commit = repo.revision;
  if (!is_commit(commit)) {
    const fs::path ref = hub_cache_folder(repo) / "refs" / repo.revision;
    if (!stays_inside(repo.revision) || !fs::is_regular_file(ref, ignored)) return std::nullopt;
    commit = read_file(ref, "name of a commit");
    while (commit.ends_with('\n')) commit.pop_back();
    if (!is_commit(commit)) return std::nullopt;
  }
  const fs::path snapshot = hub_cache_folder(repo) / "snapshots" / commit;
  return fs::is_directory(snapshot, ignored) ? std::optional(snapshot) : std::nullopt;
}

std::optional<fs::path> cached_file(const HubRepo& repo, const std::string& file) {
  if (!hub_is_offline() && !is_commit(repo.revision)) return std::nullopt;
  const std::optional<fs::path> snapshot = cached_snapshot(repo);
  std::error_code ignored;
  const bool is_there = snapshot && stays_inside(file) && fs::is_regular_file(*snapshot / file, ignored);
  return is_there ? std::optional(*snapshot / file) : std::nullopt;
}

HubListing list_cached_files(const HubAccess& access, const HubRepo& repo, const std::string& folder) {
  const std::optional<fs::path> snapshot = cached_snapshot(repo);
  TI_CHECK(snapshot, "{}", offline_refusal(access, repo, "anything"));
  HubListing listing{.commit = snapshot->filename().string(), .files = {}};
  const std::string below = folder.empty() ? "" : folder + "/";
  std::error_code error, ignored;
  fs::recursive_directory_iterator entry(*snapshot, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!entry->is_regular_file(ignored)) continue;  // also a link to what is no longer there
    const std::string name = entry->path().lexically_relative(*snapshot).generic_string();
    if (!name.starts_with(below)) continue;
    const fs::path blob = fs::read_symlink(entry->path(), ignored).filename();  // empty where links are copies
    listing.files.push_back({.path = name,
                             .size = static_cast<int64_t>(entry->file_size(ignored)),
                             .etag = blob.string(),
                             .large = blob.string().size() == 64});
  }
  TI_CHECK(!error, "the cache {} cannot be listed: {}. Check its permissions.", snapshot->string(), error.message());
  std::ranges::sort(listing.files, {}, &HubFile::path);
  log_info("HF_HUB_OFFLINE is set: the {} {} is what the cache has of it, {} files in {}", repo.kind,
           printable(repo.id), listing.files.size(), snapshot->string());
  return listing;
}

std::string offline_refusal(const HubAccess& access, const HubRepo& repo, const std::string& what) {
  return fmt::format(
      "HF_HUB_OFFLINE is set, so {} is not asked, and the cache {} does not have {} of the {} {} at the revision {}. "
      "Unset it, or name files of this machine.",
      access.endpoint, hub_cache_folder().string(), printable(what), repo.kind, printable(repo.id),
      printable(repo.revision));
}

}  // namespace titanium::remote
