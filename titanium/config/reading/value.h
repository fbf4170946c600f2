// A value of an option between its typed member and the outside world.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::config {

// null (None), boolean, integer, float, string, array of strings, of arrays of strings or of objects. What else a TOML
// file can hold arrives as well, so that a message can show it, and no option takes it: mixed arrays, and dates as the
// bytes of their text.
using Value = nlohmann::ordered_json;

// As TOML writes it, on one line; null is None. Floats read back to the same bits. Long values are cut only by
// `to_short_text`, which is for messages.
std::string to_text(const Value& value);
std::string to_short_text(const Value& value);

// A list of tables as its member holds it (Table in job_config.h), and back. `value` is an array of objects.
std::vector<std::vector<std::pair<std::string, std::string>>> to_tables(const Value& value);
Value from_tables(const std::vector<std::vector<std::pair<std::string, std::string>>>& tables);

std::vector<std::string> split(std::string_view text, char separator);

// "a", "a or b", "a, b or c".
std::string one_of_text(const std::vector<std::string>& items);

}  // namespace titanium::config
