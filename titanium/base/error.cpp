#include "titanium/base/error.h"

namespace titanium {

void throw_assertion(const char* file, int line, const char* condition, const std::string& message) {
  throw std::logic_error(fmt::format("bug in Titanium at {}:{}: {} does not hold. {}", file, line, condition, message));
}

}  // namespace titanium
