// training.sources and validation.sources: the data sets of a mix.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/config/job_config.h"

namespace titanium::config {

struct ScheduledWeight {
  int64_t step = 0;  // of the run, from which on the weight holds
  double weight = 0;

  bool operator==(const ScheduledWeight&) const = default;
};

// One [[training.sources]]. Of `path` and `dataset` at least one is given; a path wins, as with training.dataset_path.
struct DataSource {
  std::string name;                 // differs from those of the others
  std::optional<std::string> path;  // a file or a folder
  std::optional<std::string> dataset;
  std::optional<double> weight;  // share of the tokens, relative to the other weights; none: from the size
  std::vector<ScheduledWeight> weight_schedule;  // ascending, from step 0 on; instead of `weight`
  std::optional<std::string> text_field;         // none: training.text_field
  std::optional<int64_t> epochs;                 // passes until it is exhausted; none: 1
  std::string when_exhausted = "repeat";         // repeat, drop or stop

  bool operator==(const DataSource&) const = default;
};

// `option` is the name of the option, for messages. Throws UsageError with one sentence about the first thing that
// cannot be used. An empty list has no sources.
std::vector<DataSource> data_sources(const std::vector<Table>& tables, std::string_view option);

}  // namespace titanium::config
