// A word that strangers cannot guess.
#pragma once

#include <string>

namespace titanium::comm {

// 128 random bits in hexadecimal digits, from the kernel. Throws Error.
std::string make_secret();

}  // namespace titanium::comm
