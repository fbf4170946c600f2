// Memory of the machine that a run on the CPU has to do with.
#pragma once

#include "titanium/train/memory_plan.h"

namespace titanium::train {

// Bytes of this machine, or of the control group that the process runs in, if that may have fewer.
int64_t host_memory();

// For a run on the CPU. Throws UsageError with the plan and the remedies if one rank alone exceeds `host_bytes`.
void check_fits_host(const MemoryPlan& plan, int64_t host_bytes);

}  // namespace titanium::train
