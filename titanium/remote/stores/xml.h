// What object stores answer: a few elements of XML that is flat where we look.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace titanium::remote {

// The texts between <tag> and </tag>, with &amp; and its kind resolved.
std::vector<std::string> elements(std::string_view xml, const std::string& tag);

// The first of them, or "".
std::string first_element(std::string_view xml, const std::string& tag);

}  // namespace titanium::remote
