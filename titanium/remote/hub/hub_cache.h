// What the cache of Hugging Face's tools has of repositories: Note [Layout of the hub's cache] in hub_download.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "titanium/remote/hub/hub.h"

namespace titanium::remote {

// HF_HUB_CACHE, else hub/ in Hugging Face's home.
std::filesystem::path hub_cache_folder();
// <cache>/models--owner--name
std::filesystem::path hub_cache_folder(const HubRepo& repo);

// The snapshot of a revision: of a commit, or of what a branch or tag was when it was fetched. None: it was not.
std::optional<std::filesystem::path> cached_snapshot(const HubRepo& repo);

// `file` in that snapshot. While the hub may be asked only of a commit, since a branch may have moved.
std::optional<std::filesystem::path> cached_file(const HubRepo& repo, const std::string& file);

// What the snapshot has, all of it or below `folder`; of the hash what is known. Throws Error where there is none.
HubListing list_cached_files(const HubAccess& access, const HubRepo& repo, const std::string& folder = "");

// The sentence for it: HF_HUB_OFFLINE is set, and the cache lacks `what` of a repository.
std::string offline_refusal(const HubAccess& access, const HubRepo& repo, const std::string& what);

}  // namespace titanium::remote
