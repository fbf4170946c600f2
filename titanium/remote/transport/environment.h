// What the environment says.
#pragma once

#include <cstdlib>
#include <string>

namespace titanium::remote {

// The value of a variable, or "".
inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace titanium::remote
