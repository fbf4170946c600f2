#include "titanium/base/text/thousands.h"

#include <fmt/format.h>

namespace titanium {

std::string with_thousands_separators(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

}  // namespace titanium
