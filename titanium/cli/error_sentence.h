// What went wrong, in words for the user.
#pragma once

#include <exception>
#include <string>

namespace titanium::cli {

// Errors of our own are sentences already. Those of the C++ library, libtorch and nlohmann-json become one: what it
// means and what to do, with the library's first line in it and without its stack. Control characters are escaped, so
// that a name from a file cannot steer the terminal; line breaks stay, because some errors are lists.
std::string error_sentence(const std::exception& error);

}  // namespace titanium::cli
