// Files with errors that say what to do. Paths are UTF-8.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace titanium {

// The whole file. Throws Error when `path` is missing, a directory or unreadable; `what` names it in the message
// ("configuration file", "tokenizer").
std::string read_file(const std::filesystem::path& path, std::string_view what);

// Writes beside `path` and renames, so that `path` is whole or not there. Makes missing parent folders. A symbolic link
// stays one: the file that it names is replaced. What is no regular file (a device, a pipe) is written to, not
// replaced. A file that was there keeps its permissions. Throws Error, and leaves nothing beside `path` then.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace titanium
