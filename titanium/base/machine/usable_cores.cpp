#include "titanium/base/machine/usable_cores.h"

#include <sched.h>

#include <thread>

namespace titanium {

int usable_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());  // a machine of more cores than the set has room for
}

}  // namespace titanium
