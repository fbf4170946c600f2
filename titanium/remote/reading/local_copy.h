// Files at an address, brought onto this machine.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "titanium/remote/reading/byte_source.h"

namespace titanium::remote {

// What is at `path`, as a local file or folder: the path itself when it is local. From the hub, files go where Hugging
// Face's tools keep them (Note [Layout of the hub's cache]); from elsewhere into $XDG_CACHE_HOME/titanium/objects
// (~/.cache), where copies are taken again while the names, sizes and versions of all files at the address stay the
// same; after a change there is a copy in another folder. Of a folder, only what `wanted` says of its relative names.
// Several processes may do it at the same time: each file is fetched once. Throws as open_bytes does, and UsageError
// when there is nothing.
std::filesystem::path local_copy(
    const std::string& path,
    const std::function<bool(const std::string& name)>& wanted = [](const auto&) { return true; });

}  // namespace titanium::remote
