// Names of data sets, as in training.dataset and validation.dataset.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace titanium::data {

struct Dataset {
  std::string name;  // lower case
  std::filesystem::path path;
};

// Where the data set `name` (upper or lower case) is. `path` (dataset_path) overrides the registered place; with it the
// name may be any. Logs "Preparing <name> dataset from <path>". Nothing is downloaded.
// Throws UsageError when the name is unknown and no path is given, when the data set has no local place, and when it is
// of a kind that is not available yet.
Dataset find_dataset(const std::string& name, const std::optional<std::string>& path);

std::vector<std::string> dataset_names();

}  // namespace titanium::data
