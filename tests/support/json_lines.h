// Reads files with one JSON object on each line.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "titanium/base/files/file.h"

namespace titanium::test {

inline std::vector<nlohmann::json> json_lines(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(path, "test"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace titanium::test
