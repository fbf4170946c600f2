// Options that are valid but not implemented yet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "titanium/config/load_config.h"

namespace titanium::config {

// One sentence "not available yet: <option> = <value>" for each option whose value this build cannot honour. Empty: the
// run can start. An option that matters only under a switch which is off is not named.
std::vector<std::string> unavailable_options(const LoadedConfig& loaded);

// Throws UsageError with these sentences, if there are any.
void refuse_unavailable_options(const LoadedConfig& loaded);

// For the documentation: empty when everything about the option is available, else what is missing.
std::string availability_note(std::string_view option);

}  // namespace titanium::config
