// The text of a JSON record that is good beyond doubt, quickly.
#pragma once

#include <string>
#include <string_view>

namespace titanium::data {

// Puts the string in field `field` of the JSON object `record` into `text` and says true. False says only that a
// careful parser has to look: the record may be damaged, no object, without such a string, or have half of a surrogate
// pair as an escape. A zero byte must follow the record.
bool quick_text(std::string_view record, std::string_view field, std::string& text);

}  // namespace titanium::data
