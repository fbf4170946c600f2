// Numbers for people.
#pragma once

#include <string>

namespace titanium {

// "3 d 4 h", "2 h 5 min", "1 min 3 s", "12 s"; "?" for what is no duration.
std::string readable_duration(double seconds);
// "1.23 B", "45.6 M", "789": three digits.
std::string readable_count(double count);
// "1.23 GB", "45.6 MB", "789 B": powers of 1000, three digits.
std::string readable_bytes(double bytes);

}  // namespace titanium
