// The files of the folder page/, which the build puts into the program.
#pragma once

#include <string_view>

namespace titanium::observe {

std::string_view page_html();
std::string_view page_style();
std::string_view plot_script();
std::string_view page_script();

}  // namespace titanium::observe
