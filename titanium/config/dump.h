// The configuration and the options as text.
#pragma once

#include <string>

#include "titanium/config/reading/load_config.h"

namespace titanium::config {

// Every option as a TOML file that load_config reads back to the same configuration. An option that is None by default
// and in fact stands in a comment, because TOML has no None. With `with_sources`, each line ends with the source of its
// value. Options of extensions appear when the extension is selected.
std::string to_toml(const LoadedConfig& loaded, bool with_sources);

// The same as indented JSON, one object per section; None is null.
std::string to_json(const LoadedConfig& loaded);

// Every option for a terminal, and as the page docs/options.md.
std::string options_help();
std::string options_markdown();

}  // namespace titanium::config
