#include "titanium/data/dataset_registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "titanium/base/bundled.h"
#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/fetchable.h"

namespace titanium::data {
namespace {

struct Entry {
  const char* name;
  const char* path;  // null: the hub has it (fetchable.h)
  DatasetKind kind;
};

constexpr Entry kDatasets[] = {
    {"c4", nullptr, DatasetKind::kTexts},
    {"c4_test", "./tests/assets/c4_test", DatasetKind::kTexts},
    {"c4_test_validation", "./tests/assets/c4_test_validation", DatasetKind::kTexts},
    {"c4_validation", nullptr, DatasetKind::kTexts},
    {"cc12m-wds", nullptr, DatasetKind::kImages},
    {"cc12m-test", "./tests/assets/cc12m_test", DatasetKind::kImages},
    {"coco-validation", nullptr, DatasetKind::kImages},
    {"coco-test", "./tests/assets/coco_test", DatasetKind::kImages},
    // The mix of eminorhan/frontier-torchtitan.
    {"dclm", nullptr, DatasetKind::kTexts},
    {"fineweb-edu", nullptr, DatasetKind::kTexts},
    {"dolma", nullptr, DatasetKind::kTexts},
    {"zyda", nullptr, DatasetKind::kTexts},
    {"the-stack-v2", nullptr, DatasetKind::kTexts},
    {"finemath", nullptr, DatasetKind::kTexts},
};

std::string lower(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return name;
}

}  // namespace

Dataset locate_dataset(const std::string& requested, const std::optional<std::string>& path, DatasetKind kind) {
  const std::string name = lower(requested);
  const auto* entry = std::find_if(std::begin(kDatasets), std::end(kDatasets),
                                   [&](const Entry& candidate) { return candidate.name == name; });
  const bool known = entry != std::end(kDatasets);
  if (known && entry->kind != kind)
    throw UsageError(entry->kind == DatasetKind::kImages
                         ? fmt::format("Dataset {} holds images, and texts are read here. Use a text dataset.", name)
                         : fmt::format("Dataset {} holds texts, and images with captions are read here. Use cc12m-wds, "
                                       "or another name and dataset_path for archives of your own.",
                                       name));
  if (!path && !known)
    throw UsageError(fmt::format(
        "Dataset {} is not supported. Supported datasets are: {}. To read files of your own, set dataset_path.", name,
        fmt::join(dataset_names(), ", ")));
  if (path) return {.name = name, .path = *path};
  if (entry->path != nullptr) return {.name = name, .path = bundled(entry->path)};
  const std::optional<std::string> address = hub_address(name);
  if (!address) throw UsageError(missing_dataset_sentence(name));
  return {.name = name, .path = *address, .at_hub = true};
}

Dataset find_dataset(const std::string& name, const std::optional<std::string>& path, DatasetKind kind) {
  Dataset dataset = locate_dataset(name, path, kind);
  log_info("Preparing {} dataset from {}", dataset.name, dataset.path.string());
  return dataset;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kDatasets) names.emplace_back(entry.name);
  return names;
}

}  // namespace titanium::data
