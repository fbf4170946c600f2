#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace titanium::data::testing {

// What the process has read, as the kernel counts it; -1 where it does not.
inline int64_t bytes_read() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  int64_t value = 0;
  while (counters >> name >> value)
    if (name == "rchar:") return value;
  return -1;
}

}  // namespace titanium::data::testing
