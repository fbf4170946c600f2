// 1234567 -> "1,234,567", in every locale.
#pragma once

#include <cstdint>
#include <string>

namespace titanium {

std::string with_thousands_separators(int64_t number);

}  // namespace titanium
