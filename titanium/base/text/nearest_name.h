// "Did you mean ...": the closest of several names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titanium {

// The candidate with the smallest edit distance to `name`, if that is at most a third of the name's length (at least
// 2). Nothing for a name of more than 256 bytes, which nobody has mistyped.
std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace titanium
