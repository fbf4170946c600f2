// The configuration of a run from the command line, a TOML file and the defaults, in this order of precedence.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/config/job_config.h"

namespace titanium::config {

struct LoadedConfig {
  JobConfig config;
  // Option to "file:line" or "command line", for every option that was given.
  std::map<std::string, std::string, std::less<>> sources;
  // Sentences worth a log line: deprecated spellings, options without effect, a missing folder.
  std::vector<std::string> hints;

  // Where the value comes from: "default", "file:line" or "command line".
  std::string source(std::string_view option) const;
};

// `args` are options only: --section.key value, --section.key=value, --section.flag, --section.no_flag; `-` and `_` are
// the same in names; --job.config_file names the TOML file. Where an option is repeated, the last one counts.
// Throws UsageError whose message has one line per problem: every one of the file, of the command line and of options
// that contradict each other.
LoadedConfig load_config(std::span<const std::string> args);

// The rules that need the number of ranks. Throws UsageError as load_config does.
void check_world_size(const LoadedConfig& loaded, int64_t world_size);

}  // namespace titanium::config
