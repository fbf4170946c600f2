// Base64, as files of tokens and normalisers and keys of storage accounts spell bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace titanium {

// The bytes of `text` with or without its padding; nothing when it is not base64.
std::optional<std::string> from_base64(std::string_view text);

std::string to_base64(std::string_view bytes);

}  // namespace titanium
