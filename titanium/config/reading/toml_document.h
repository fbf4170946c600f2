// A TOML file as a tree that remembers its lines. The only place that calls the TOML library.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "titanium/config/reading/value.h"

namespace titanium::config {

struct TomlNode {
  int64_t line = 0;
  bool is_table = false;
  std::string key;                 // empty for the root
  Value value;                     // when it is not a table
  std::vector<TomlNode> children;  // of a table, in the order of the file
};

// Throws UsageError with one sentence: the file is missing, a directory, unreadable, not UTF-8 or not TOML (file and
// line).
TomlNode read_toml(const std::filesystem::path& path);

// The same for the content of `path`.
TomlNode parse_toml(std::string_view content, const std::string& path);

}  // namespace titanium::config
