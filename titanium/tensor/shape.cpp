#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/tensor/tensor.h"

namespace titanium {

int64_t volume(const Shape& shape) {
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  int64_t elements = 1;
  for (const int64_t size : shape) {
    TI_CHECK(!__builtin_mul_overflow(elements, size, &elements), "shape [{}] has more elements than any memory.",
             fmt::join(shape, ", "));
  }
  return elements;
}

}  // namespace titanium
