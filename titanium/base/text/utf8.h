// Whether bytes are UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace titanium {

// Length of the UTF-8 sequence at the beginning of `text`; 0 when it is not one (overlong forms and surrogates
// included).
size_t utf8_length(std::string_view text);

// Whether all of `text` is UTF-8; ASCII is checked eight bytes at a time.
bool is_utf8(std::string_view text);

}  // namespace titanium
