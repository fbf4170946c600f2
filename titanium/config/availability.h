// Options that are valid but not implemented yet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "titanium/config/reading/load_config.h"

namespace titanium::config {

// What the configuration is read for. An option that only observes a run (profiles, pictures, where metrics go) matters
// to a run and not to a plan of it.
enum class Purpose { kRun, kPlan };

// One sentence "not available yet: <option> = <value>" for each option whose value this build cannot honour. Empty: the
// run can start. An option that matters only under a switch which is off is not named.
std::vector<std::string> unavailable_options(const LoadedConfig& loaded, Purpose purpose = Purpose::kRun);

// Throws UsageError with these sentences, if there are any.
void refuse_unavailable_options(const LoadedConfig& loaded, Purpose purpose = Purpose::kRun);

// For the documentation: empty when everything about the option is available, else what is missing.
std::string availability_note(std::string_view option);

}  // namespace titanium::config
