#include "titanium/base/machine/heap.h"

#include <malloc.h>

#include <limits>

namespace titanium {

void keep_freed_memory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace titanium
