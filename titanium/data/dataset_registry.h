// Names of data sets, as in training.dataset and validation.dataset.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace titanium::data {

enum class DatasetKind { kTexts, kImages };

struct Dataset {
  std::string name;            // lower case
  std::filesystem::path path;  // or an address
  bool at_hub = false;         // where the registry says, which need not be looked at before it is read
};

// Where the data set `name` (upper or lower case) is: `path` (dataset_path), with which the name may be any, else the
// registered place, which is bundled with the program or at the hub. Nothing is downloaded, and what is at that place
// is not looked at. Throws UsageError when the name is unknown and no path is given, when the data set has no place
// that can be read, and when it is known to be of another kind.
Dataset locate_dataset(const std::string& name, const std::optional<std::string>& path,
                       DatasetKind kind = DatasetKind::kTexts);
// The same for a data set that is read next. Logs "Preparing <name> dataset from <path>".
Dataset find_dataset(const std::string& name, const std::optional<std::string>& path,
                     DatasetKind kind = DatasetKind::kTexts);

std::vector<std::string> dataset_names();

}  // namespace titanium::data
