// Names that come from files, other processes or the network, made fit for a terminal and a log line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace titanium {

// `text` as one line that cannot steer a terminal: control characters, line separators, characters that reverse the
// direction of writing, and bytes that are not UTF-8 become escapes (`\n`, `\t`, `\x1b`, `\u202e`). Everything else
// stays as it is, other scripts and backslashes included. A text of more than `limit` bytes is cut at a character and
// ends with "... (1,234 bytes)".
std::string printable(std::string_view text, size_t limit = 256);

}  // namespace titanium
