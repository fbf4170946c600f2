// A value of an option between its typed member and the outside world.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::config {

// null (None), boolean, integer, float, string, array of strings, or array of arrays of strings. What else a TOML file
// can hold arrives as well, so that a message can show it, and no option takes it: objects, mixed arrays, and dates as
// the bytes of their text.
using Value = nlohmann::ordered_json;

// As TOML writes it, on one line; null is None. Floats read back to the same bits. Long values are cut only by
// `to_short_text`, which is for messages.
std::string to_text(const Value& value);
std::string to_short_text(const Value& value);

std::vector<std::string> split(std::string_view text, char separator);

// "a", "a or b", "a, b or c".
std::string one_of_text(const std::vector<std::string>& items);

}  // namespace titanium::config
