#include "titanium/train/host_memory.h"

#include <unistd.h>

#include <fstream>

#include "titanium/base/error.h"

namespace titanium::train {

int64_t host_memory() {
  int64_t bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  for (const char* limit : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t most = 0;  // stays 0 where the file is missing or says "max"
    if (std::ifstream(limit) >> most && most > 0) bytes = std::min(bytes, most);
  }
  return bytes;
}

void check_fits_host(const MemoryPlan& plan, int64_t host_bytes) {
  const int64_t needed = plan.total() + plan.on_host;
  if (needed <= host_bytes) return;
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  throw UsageError(
      fmt::format("the run needs about {:.1f} GiB, but this machine has {:.1f} GiB ({}). Use a smaller model.flavor, "
                  "training.local_batch_size or training.seq_len, or more machines.",
                  static_cast<double>(needed) / kGiB, static_cast<double>(host_bytes) / kGiB, describe(plan)));
}

}  // namespace titanium::train
