// Which extension a torchtitan configuration module stands for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "titanium/config/schema/option.h"

namespace titanium::config {

// kNone for the empty name; nothing for a module that Titanium does not have.
std::optional<Extension> find_extension(std::string_view module);

// The module to name for `extension`, which is not kNone.
std::string extension_module(Extension extension);

// All of them, for a message.
std::string extension_modules_text();

// False for an option of an extension that `config` does not select.
bool is_selected(const Option& option, const JobConfig& config);

}  // namespace titanium::config
