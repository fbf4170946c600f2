#include "titanium/data/dataset_registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/fetchable.h"

namespace titanium::data {
namespace {

enum class Kind { kText, kImages };

struct Entry {
  const char* name;
  const char* path;  // null: lives on the Hugging Face hub, so the user names a local copy
  Kind kind;
};

constexpr Entry kDatasets[] = {
    {"c4", nullptr, Kind::kText},
    {"c4_test", "./tests/assets/c4_test", Kind::kText},
    {"c4_test_validation", "./tests/assets/c4_test_validation", Kind::kText},
    {"c4_validation", nullptr, Kind::kText},
    {"cc12m-wds", nullptr, Kind::kImages},
    {"cc12m-test", nullptr, Kind::kImages},
    {"coco-validation", nullptr, Kind::kImages},
    // The mix of eminorhan/frontier-torchtitan.
    {"dclm", nullptr, Kind::kText},
    {"fineweb-edu", nullptr, Kind::kText},
    {"dolma", nullptr, Kind::kText},
    {"zyda", nullptr, Kind::kText},
    {"the-stack-v2", nullptr, Kind::kText},
    {"finemath", nullptr, Kind::kText},
};

std::string lower(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return name;
}

}  // namespace

Dataset locate_dataset(const std::string& requested, const std::optional<std::string>& path) {
  const std::string name = lower(requested);
  const auto* entry = std::find_if(std::begin(kDatasets), std::end(kDatasets),
                                   [&](const Entry& candidate) { return candidate.name == name; });
  const bool known = entry != std::end(kDatasets);
  if (known && entry->kind == Kind::kImages)
    throw UsageError(fmt::format("Dataset {} holds images, which are not available yet. Use a text dataset.", name));
  if (!path && !known)
    throw UsageError(fmt::format(
        "Dataset {} is not supported. Supported datasets are: {}. To read files of your own, set dataset_path.", name,
        fmt::join(dataset_names(), ", ")));
  if (!path && entry->path == nullptr) throw UsageError(missing_dataset_sentence(name));
  return {.name = name, .path = path ? std::filesystem::path(*path) : std::filesystem::path(entry->path)};
}

Dataset find_dataset(const std::string& name, const std::optional<std::string>& path) {
  Dataset dataset = locate_dataset(name, path);
  log_info("Preparing {} dataset from {}", dataset.name, dataset.path.string());
  return dataset;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kDatasets) names.emplace_back(entry.name);
  return names;
}

}  // namespace titanium::data
